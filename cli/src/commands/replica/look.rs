//! `carlos replica ls` and `carlos replica verify`.

use carlos_protocol::copy::Bytes;
use carlos_replica::ls::{self, LsFile, LsReport, Moment};
use carlos_replica::survey::Others;
use carlos_replica::verify::{self, LevelReport, VerifyReport};
use carlos_replica::{ReadError, RestoreFailure};

use super::{failure, open, time};
use crate::args::ReplicaLook;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::out;

pub(in crate::commands) async fn ls(args: ReplicaLook) -> Result<(), Failure> {
    let report = ls::ls(&open(&args.url)?).await.map_err(unreadable)?;
    if args.json {
        return out::json(&report);
    }
    let line = |file: &LsFile| {
        let LsFile { level, name, size, time_ms } = file;
        format!("{level}\t{name}\t{size}\t{}", time(*time_ms))
    };
    out::lines(report.files.iter().map(line))?;
    say_others(&report.others);
    out::say(&totals(&report));
    say_range(report.newest.as_ref(), report.oldest_ms);
    Ok(())
}

/// Its report is worth most when something is wrong, so `--json` prints it whatever the exit code.
pub(in crate::commands) async fn verify(args: ReplicaLook) -> Result<(), Failure> {
    let report = verify::verify(&open(&args.url)?).await.map_err(unreadable)?;
    if args.json {
        out::json(&report)?;
    } else if report.sound {
        out::lines(report.levels.iter().map(level_line))?;
    } else {
        report.levels.iter().for_each(|level| out::say(&level_line(level)));
    }
    if !args.json {
        say_findings(&report);
    }
    verdict(&report)
}

fn level_line(level: &LevelReport) -> String {
    let LevelReport { level, files, bytes, first, last, gaps, restores } = level;
    let (gaps, restores) = (gaps.len(), restores.as_deref().unwrap_or("-"));
    format!("{level}\t{files}\t{bytes}\t{first}\t{last}\t{gaps}\t{restores}")
}

fn say_findings(report: &VerifyReport) {
    for level in &report.levels {
        for gap in &level.gaps {
            let (level, after, next) = (level.level, &gap.after, &gap.next);
            out::say(&format!("level {level} has nothing between {after} and {next}."));
        }
    }
    for damage in &report.damaged {
        out::say(&format!("level {} {}: {}.", damage.level, damage.name, damage.problem));
    }
    say_others(&report.others);
    if report.times_reset > 0 {
        let count = report.times_reset;
        out::say(&format!("a copy has reset the times of {count} files; their headers tell them."));
    }
    if report.vanished > 0 {
        out::say(&format!("{} files were removed while this ran.", report.vanished));
    }
    say_range(report.newest.as_ref(), report.oldest_ms);
}

fn verdict(report: &VerifyReport) -> Result<(), Failure> {
    if let Some(problem) = &report.problem {
        let sentence = format!("the newest state cannot be restored: {problem}.");
        return Err(Failure::new(Exit::Replica, sentence));
    }
    let damaged = report.damaged.len();
    if damaged > 0 {
        let sentence = format!("{damaged} files are damaged. the newest state does not need them.");
        return Err(Failure::new(Exit::Replica, sentence));
    }
    out::say(&format!("{} files, {}, all sound.", report.files, Bytes(report.bytes)));
    Ok(())
}

fn say_others(others: &[Others]) {
    for Others { kind, count, bytes, example } in others {
        out::say(&format!("{count} other objects, {}, {kind}: {example}", Bytes(*bytes)));
    }
}

fn totals(report: &LsReport) -> String {
    match report.layout {
        Some(layout) => {
            let (files, bytes) = (report.files.len(), Bytes(report.bytes));
            format!("{files} transaction files, {bytes}, in the {layout} layout.")
        }
        None => "there are no transaction files.".to_owned(),
    }
}

fn say_range(newest: Option<&Moment>, oldest_ms: Option<i64>) {
    if let Some(Moment { txid, time_ms }) = newest {
        out::say(&format!("the newest state is transaction {txid} of {}.", time(*time_ms)));
    }
    if let Some(oldest_ms) = oldest_ms {
        out::say(&format!("--at reaches back to {}.", time(oldest_ms)));
    }
}

fn unreadable(error: ReadError) -> Failure {
    failure(RestoreFailure::from(error).into())
}
