//! `jobledger top`

use std::io::IsTerminal;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::{Instant, sleep_until};

use super::report;
use super::surroundings::{Surroundings, now};
use crate::arguments;
use crate::formats::{moment, table};
use crate::job_id::JobId;
use crate::source::prometheus::{Prometheus, RunningJob, Selection};
use crate::top::{self, Ask, Screen};
use crate::{Failure, output};

pub(super) async fn run(options: &arguments::Top, here: &Surroundings) -> Result<(), Failure> {
    let selection = Selection {
        user: here.privacy.owner(options.user.clone())?,
        account: options.account.clone(),
        partition: options.partition.clone(),
        ..Selection::default()
    };
    let look = async || {
        let server = server_now(here);
        let jobs = server.running(&selection, f64::from(options.over) * 60.0).await?;
        Ok::<_, Failure>((jobs, server.until))
    };
    if options.once {
        let (mut jobs, at) = look().await?;
        top::sort(&mut jobs, options.sort);
        let rows: Vec<table::Row> = jobs.iter().map(|job| top::row(job, at)).collect();
        let text = format!("{}\n\n{}", top::summary(&jobs), table::text(&top::heads(), &rows));
        return output::write(None, text.as_bytes());
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::usage("this is no terminal: --once prints the table once"));
    }
    // A server that cannot be asked is said before the screen is taken.
    let (jobs, at) = look().await?;
    let mut screen = Screen::new(options.sort, here.colour(), &here.prometheus.thresholds);
    screen.show(jobs, (at, clock(at, here)));
    let mut terminal = ratatui::try_init().map_err(terminal_failed)?;
    let done = live(&mut terminal, &mut screen, look, options, here).await;
    ratatui::restore();
    done
}

fn server_now(here: &Surroundings) -> Prometheus {
    Prometheus { until: now(), ..here.prometheus.clone() }
}

fn clock(at: f64, here: &Surroundings) -> String {
    moment(at, &here.zone, "%H:%M:%S")
}

fn terminal_failed(error: std::io::Error) -> Failure {
    Failure::other(format!("the terminal: {error}"))
}

async fn live(
    terminal: &mut DefaultTerminal,
    screen: &mut Screen,
    look: impl AsyncFn() -> Result<(Vec<RunningJob>, f64), Failure>,
    options: &arguments::Top,
    here: &Surroundings,
) -> Result<(), Failure> {
    let delay = Duration::from_secs(options.delay.into());
    let (mut events, mut next) = (events(), Instant::now() + delay);
    loop {
        terminal.draw(|frame| screen.draw(frame)).map_err(terminal_failed)?;
        let ask = tokio::select! {
            event = events.recv() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => screen.key(key),
                Some(Ok(_)) => None,
                Some(Err(error)) => return Err(terminal_failed(error)),
                None => return Ok(()),
            },
            () = sleep_until(next) => Some(Ask::Look),
        };
        match ask {
            None => {}
            Some(Ask::Quit) => return Ok(()),
            Some(Ask::Look) => {
                // Keys that come meanwhile wait for it; a server that is slow has the client's timeout.
                match look().await {
                    Ok((jobs, at)) => screen.show(jobs, (at, clock(at, here))),
                    Err(failure) => screen.say(failure.says),
                }
                next = Instant::now() + delay;
            }
            Some(Ask::Report(name)) => match page(&name, here).await {
                Ok(text) => screen.cover(text),
                Err(failure) => screen.say(failure.says),
            },
        }
    }
}

async fn page(name: &str, here: &Surroundings) -> Result<String, Failure> {
    let id: JobId = name.parse().map_err(|error| Failure::usage(format!("{error}")))?;
    let report = here.report_by(&server_now(here), &report::wanted(&id)).await?;
    Ok(report::text(&report, here, false))
}

/// What the terminal sends. The thread that waits for it ends with the program.
fn events() -> UnboundedReceiver<std::io::Result<Event>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        loop {
            let event = event::read();
            let is_over = event.is_err();
            if sender.send(event).is_err() || is_over {
                return;
            }
        }
    });
    receiver
}
