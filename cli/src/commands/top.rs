//! `jobledger top`

use std::future::Future;
use std::io::IsTerminal;
use std::pin::Pin;
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
use crate::source::prometheus::{Prometheus, RunningJob};
use crate::top::{self, Ask, Screen};
use crate::{Failure, output};

pub(super) async fn run(options: &arguments::Top, here: &Surroundings) -> Result<(), Failure> {
    let selection = here.selection(&options.whose)?;
    let look = async || {
        let server = server_now(here);
        let jobs = server.running(&selection, f64::from(options.over) * 60.0).await?;
        Ok::<_, Failure>((jobs, server.until))
    };
    if options.once {
        // The table of another time, with --until.
        let at = here.source.until;
        let mut jobs = here.source.running(&selection, f64::from(options.over) * 60.0).await?;
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
    let mut screen = Screen::new(options.sort, here.colour(), &here.thresholds);
    screen.show(jobs, (at, clock(at, here)));
    let mut terminal = ratatui::try_init().map_err(terminal_failed)?;
    let done = live(&mut terminal, &mut screen, look, options, here).await;
    ratatui::restore();
    done
}

fn server_now(here: &Surroundings) -> Prometheus {
    Prometheus { until: now(), ..here.source.clone() }
}

fn clock(at: f64, here: &Surroundings) -> String {
    moment(at, &here.zone, "%H:%M:%S")
}

fn terminal_failed(error: std::io::Error) -> Failure {
    Failure::other(format!("the terminal: {error}"))
}

/// What the server was asked for.
enum Answer {
    Jobs(Result<(Vec<RunningJob>, f64), Failure>),
    Page(Result<String, Failure>),
}

type Question<'a> = Pin<Box<dyn Future<Output = Answer> + 'a>>;

/// The answer, once there is a question.
async fn answer(question: &mut Option<Question<'_>>) -> Answer {
    match question {
        Some(question) => question.await,
        None => std::future::pending().await,
    }
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
    // A key is answered also while the server is waited for; a later question takes the place of an earlier one.
    let mut question: Option<Question<'_>> = None;
    loop {
        terminal.draw(|frame| screen.draw(frame)).map_err(terminal_failed)?;
        let ask = tokio::select! {
            event = events.recv() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => screen.key(key),
                Some(Ok(_)) => None,
                Some(Err(error)) => return Err(terminal_failed(error)),
                None => return Ok(()),
            },
            () = sleep_until(next), if question.is_none() => Some(Ask::Look),
            answer = answer(&mut question) => {
                question = None;
                next = Instant::now() + delay;
                match answer {
                    Answer::Jobs(Ok((jobs, at))) => screen.show(jobs, (at, clock(at, here))),
                    Answer::Page(Ok(text)) => screen.cover(text),
                    Answer::Jobs(Err(failure)) | Answer::Page(Err(failure)) => screen.say(failure.says),
                }
                None
            }
        };
        match ask {
            None => {}
            Some(Ask::Quit) => return Ok(()),
            Some(Ask::Look) => {
                question = Some(Box::pin(async { Answer::Jobs(look().await) }));
            }
            Some(Ask::Report(name)) => {
                question = Some(Box::pin(async move { Answer::Page(page(&name, here).await) }));
            }
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
