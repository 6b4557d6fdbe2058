//! Man pages, completions and the page of options: made from the command line, so that they cannot fall behind it.

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, line_break, roman};

use crate::arguments::Arguments;
use crate::config;
use crate::{Failure, Kind};

const PROGRAM: &str = "jobledger";

/// Variables that no option names.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("SLURM_JOB_ID", "The job of report if the command line has none. SLURM sets it in a job."),
    ("SLURM_JOB_MAIL_TYPE", "What happened to the job of a mail. slurmctld sets it for MailProg."),
    ("USER", "Whose jobs list shows if the command line has no user."),
    ("NO_COLOR", "Nothing is coloured if it is set and not empty."),
    ("XDG_CONFIG_HOME", "The directory of the user's configuration. It is ~/.config if this is not set."),
    (
        "HTTPS_PROXY, HTTP_PROXY, NO_PROXY",
        "Proxies, if the file of --http.config.file has proxy_from_environment. Lower case works, too.",
    ),
];

/// A script that completes command lines.
pub(crate) fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), PROGRAM, &mut script);
    script
}

/// The program's man page, or that of a command.
pub(crate) fn man(command: Option<&str>) -> Result<Vec<u8>, Failure> {
    let (program, mut bytes) = (built(), Vec::new());
    let rendered = match command {
        None => whole(&program, &mut bytes),
        Some(name) => {
            let command = shown(&program).find(|command| command.get_name() == name);
            let command =
                command.ok_or_else(|| Failure::usage(format!("{name}: there is no such command")))?;
            one(command, &mut bytes)
        }
    };
    rendered.map_err(|error| Failure::other(error.to_string()))?;
    Ok(bytes)
}

/// With all that clap adds. Its command `help` has no page.
fn built() -> Command {
    let mut program = Arguments::command();
    program.build();
    program.mut_subcommand("help", |help| help.hide(true))
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

fn page(command: Command) -> Man {
    Man::new(command).source(format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION"))).manual("Jobledger")
}

fn beginning(page: &Man, out: &mut Vec<u8>) -> std::io::Result<()> {
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_options_section(out)
}

fn whole(program: &Command, out: &mut Vec<u8>) -> std::io::Result<()> {
    let page = page(program.clone().subcommand_help_heading("COMMANDS"));
    beginning(&page, out)?;
    page.render_subcommands_section(out)?;
    let mut roff = Roff::new();
    examples(program, &mut roff);
    roff.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in statuses() {
        item(&mut roff, &status.to_string(), meaning);
    }
    roff.control("SH", ["ENVIRONMENT"]);
    for option in options(program) {
        if let (Some(variable), Some(long)) = (option.get_env(), option.get_long()) {
            item(&mut roff, &variable.to_string_lossy(), &format!("As --{long}, which goes before it."));
        }
    }
    for (variable, meaning) in ENVIRONMENT {
        item(&mut roff, variable, meaning);
    }
    roff.control("SH", ["FILES"]);
    item(&mut roff, config::SITE, "The site's configuration.");
    item(
        &mut roff,
        &format!("~/.config/{}", config::USER),
        "The user's. What it sets goes before the site's.",
    );
    item(
        &mut roff,
        &format!("/usr/share/doc/{PROGRAM}/jobledger.toml.example"),
        "An example with every key. The key for an option goes after the option and its variable.",
    );
    roff.control("SH", ["SEE ALSO"]);
    let pages: Vec<String> =
        shown(program).map(|command| format!("{PROGRAM}-{}(1)", command.get_name())).collect();
    roff.text([roman(pages.join(", "))]);
    roff.to_writer(out)
}

fn one(command: &Command, out: &mut Vec<u8>) -> std::io::Result<()> {
    // These are on the program's page.
    let own =
        command.clone().mut_args(|option| if option.is_global_set() { option.hide(true) } else { option });
    beginning(&page(own), out)?;
    let mut roff = Roff::new();
    examples(command, &mut roff);
    roff.control("SH", ["SEE ALSO"]);
    roff.text([
        italic(PROGRAM),
        roman("(1) has the options of all commands, the exit statuses, the environment and the files."),
    ]);
    roff.to_writer(out)
}

/// What is after the first line of the text below the help.
fn examples(command: &Command, roff: &mut Roff) {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let Some((_, lines)) = text.split_once('\n') else { return };
    roff.control("SH", ["EXAMPLES"]);
    roff.control("EX", []);
    roff.text(lines.lines().flat_map(|line| [roman(line), line_break()]).collect::<Vec<_>>());
    roff.control("EE", []);
}

fn item(roff: &mut Roff, term: &str, text: &str) {
    roff.control("TP", []);
    roff.text([bold(term)]);
    roff.text([roman(text)]);
}

fn statuses() -> impl Iterator<Item = (u8, &'static str)> {
    std::iter::once((0, "All was done.")).chain(Kind::ALL.map(|kind| (kind as u8, kind.meaning())))
}

/// In the order of the command line's help. -h and --version are left out.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|option| !matches!(option.get_id().as_str(), "help" | "version"))
}

/// docs/cli-flags.md
pub(crate) fn flags() -> String {
    let program = built();
    let mut page = "<!-- Made by `make docs`; edit the program instead. -->\n# Options of `jobledger`\n\n\
         The command line goes before the environment, that before the user's configuration, and that before the site's.\n\
         Unknown options are errors. [cli.md](cli.md) says what reports have.\n\n## All commands\n\n"
        .to_owned();
    table(&mut page, options(&program));
    for command in shown(&program) {
        let (name, about) = (command.get_name(), command.get_about().map(ToString::to_string));
        let _ = write!(page, "\n## {PROGRAM} {name}\n\n{}.\n\n", about.unwrap_or_default());
        if options(command).any(|option| !option.is_global_set()) {
            table(&mut page, options(command).filter(|option| !option.is_global_set()));
        } else {
            page.push_str("It has no options of its own.\n");
        }
    }
    page.push_str("\n## Exit status\n\n| status | meaning |\n|---:|---|\n");
    for (status, meaning) in statuses() {
        let _ = writeln!(page, "| {status} | {meaning} |");
    }
    page
}

fn table<'a>(page: &mut String, options: impl Iterator<Item = &'a Arg>) {
    page.push_str("| option | default | environment | meaning |\n|---|---|---|---|\n");
    for option in options {
        let takes = option.get_action().takes_values();
        let mut names: Vec<String> =
            option.get_short().map(|short| format!("`-{short}`")).into_iter().collect();
        let values = option.get_value_names().unwrap_or_default();
        let value = values.first().map(ToString::to_string).unwrap_or_default();
        names.push(match option.get_long() {
            Some(long) if takes => format!("`--{long} {value}`"),
            Some(long) => format!("`--{long}`"),
            None => format!("`{value}`"),
        });
        let default: Vec<_> =
            option.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let variable = option.get_env().map(|name| format!("`{}`", name.to_string_lossy()));
        let mut meaning = option.get_help().map(ToString::to_string).unwrap_or_default();
        let possible = if takes { option.get_possible_values() } else { Vec::new() };
        for value in &possible {
            let says = value.get_help().map(|help| format!(" ({help})")).unwrap_or_default();
            let _ = write!(meaning, "<br>`{}`{says}", value.get_name());
        }
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} |",
            names.join(", "),
            if takes { default.join(", ") } else { String::new() },
            variable.unwrap_or_default(),
            meaning.replace('|', "\\|")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_status_is_said() {
        let said: Vec<u8> = statuses().map(|(status, _)| status).collect();
        assert_eq!(said, [0, 1, 2, 3, 4, 5, 6, 7, 130]);
    }

    /// The words of a line, of which some may be quoted.
    fn words(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate();
        let words = |(at, part): (usize, &str)| match at % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        };
        parts.flat_map(words).collect()
    }

    #[test]
    fn each_command_has_examples_that_it_takes() {
        let program = built();
        for command in std::iter::once(&program).chain(shown(&program)) {
            let text =
                command.get_after_help().unwrap_or_else(|| panic!("{}", command.get_name())).to_string();
            let lines: Vec<&str> = text.lines().skip(1).collect();
            assert!(!lines.is_empty());
            for line in lines {
                let line = line.split_once(" # ").map_or(line, |(line, _)| line);
                Arguments::command()
                    .try_get_matches_from(words(line))
                    .unwrap_or_else(|error| panic!("{line}: {error}"));
            }
            let mut page = Vec::new();
            let name = command.get_name();
            page.extend(man(Some(name).filter(|name| *name != PROGRAM)).unwrap());
            assert!(String::from_utf8(page).unwrap().contains(".SH EXAMPLES\n"), "{name}");
        }
    }

    #[test]
    fn help_is_a_command_without_a_page() {
        let help = Arguments::command().try_get_matches_from(["jobledger", "help", "report"]).unwrap_err();
        assert_eq!(help.kind(), clap::error::ErrorKind::DisplayHelp);
        assert_eq!(man(Some("help")).unwrap_err().says, "help: there is no such command");
    }

    #[test]
    fn there_is_no_page_of_another_command() {
        assert_eq!(man(Some("mars")).unwrap_err(), Failure::usage("mars: there is no such command"));
    }
}
