/* What it costs to read some files and nothing else, once a second: opened, read and closed, or read where they are held open, and directories listed.
 * A line of the input is a kind (read, held, list), a directory and a name in it. The argument says how often. Each time it prints the CPU time of that,
 * in microseconds. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST 4096

static struct {
    char kind;
    int dir, held;
    char name[256];
} files[MOST];
static char at[MOST][1024], room[1 << 15];
static int opened[MOST];

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void look(int file)
{
    int fd;

    if (files[file].kind == 'h') {
        pread(files[file].held, room, sizeof room, 0);
        return;
    }
    fd = openat(files[file].dir, files[file].name, O_RDONLY | O_CLOEXEC | (files[file].kind == 'l' ? O_DIRECTORY : 0));
    if (fd < 0)
        return;
    if (files[file].kind == 'l')
        while (syscall(SYS_getdents64, fd, room, sizeof room) > 0)
            ;
    else
        read(fd, room, sizeof room);
    close(fd);
}

int main(int argc, char **argv)
{
    char kind[8], directory[1024];
    int count = 0, dirs = 0, rounds = argc > 1 ? atoi(argv[1]) : 1;

    while (count < MOST && scanf("%7s %1023s %255s", kind, directory, files[count].name) == 3) {
        int dir = 0;
        while (dir < dirs && strcmp(at[dir], directory))
            dir++;
        if (dir == dirs) {
            strcpy(at[dirs], directory);
            opened[dirs++] = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
        }
        files[count].kind = kind[0];
        files[count].dir = opened[dir];
        if (kind[0] == 'h')
            files[count].held = openat(opened[dir], files[count].name, O_RDONLY | O_CLOEXEC);
        count++;
    }
    while (rounds-- > 0) {
        double before;
        /* Half a second after what it is compared with. */
        double wait = 1.5 - (seconds(CLOCK_REALTIME) - (long)seconds(CLOCK_REALTIME));
        usleep((wait > 1 ? wait - 1 : wait) * 1e6);
        before = seconds(CLOCK_PROCESS_CPUTIME_ID);
        for (int file = 0; file < count; file++)
            look(file);
        printf("%.1f\n", (seconds(CLOCK_PROCESS_CPUTIME_ID) - before) * 1e6);
    }
    return 0;
}
