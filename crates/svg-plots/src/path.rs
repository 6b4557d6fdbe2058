//! Data of SVG paths: short, and with no more points than can be seen.

/// A point of a drawing.
pub(crate) type Point = (f64, f64);

/// Parts of a curve without gaps. A point by itself gets a second one beside it, so that it can be seen.
pub(crate) fn runs(points: impl Iterator<Item = Option<Point>>, right: f64) -> Vec<Vec<Point>> {
    let mut runs: Vec<Vec<Point>> = Vec::new();
    let mut open = false;
    for point in points {
        match (point, runs.last_mut().filter(|_| open)) {
            (Some(point), Some(run)) => run.push(point),
            (Some(point), None) => runs.push(vec![point]),
            (None, _) => {}
        }
        open = point.is_some();
    }
    for run in &mut runs {
        if let [(x, y)] = run[..] {
            run.push((if x + 1.0 <= right { x + 1.0 } else { x - 1.0 }, y));
        }
    }
    runs
}

/// A curve with at most two points in each column of a pixel: the highest and the lowest, in their order. Its first and
/// last point are kept.
pub(crate) fn thinned(run: &[Point]) -> Vec<Point> {
    let mut kept = Vec::new();
    let mut keep = |point: &Point| {
        if kept.last() != Some(point) {
            kept.push(*point);
        }
    };
    run.first().into_iter().for_each(&mut keep);
    for column in run.chunk_by(|a, b| a.0.floor() == b.0.floor()) {
        let by_height = |(_, a): &(usize, &Point), (_, b): &(usize, &Point)| a.1.total_cmp(&b.1);
        let least = column.iter().enumerate().min_by(by_height);
        let most = column.iter().enumerate().max_by(by_height);
        let mut both = [least, most];
        both.sort_by_key(|found| found.map(|(at, _)| at));
        both.into_iter().flatten().for_each(|(_, point)| keep(point));
    }
    run.last().into_iter().for_each(&mut keep);
    kept
}

/// A number with so many decimals at most, without a zero that says nothing.
pub(crate) fn number(value: f64, per_one: f64) -> String {
    // Plus zero: there is no -0.
    let shown = format!("{}", (value * per_one).round() / per_one + 0.0);
    match (shown.strip_prefix("0."), shown.strip_prefix("-0.")) {
        (Some(decimals), _) => format!(".{decimals}"),
        (_, Some(decimals)) => format!("-.{decimals}"),
        _ => shown,
    }
}

/// Tenths of a pixel are enough for curves.
const TENTHS: f64 = 10.0;

fn tenths(value: f64) -> f64 {
    (value * TENTHS).round() / TENTHS
}

/// The `d` of a path, relative but for its first point.
#[derive(Debug, Default)]
pub(crate) struct Path {
    data: String,
    at: Point,
    /// Where the part began, and where a close goes back to.
    start: Point,
    /// A horizontal line that may go on.
    level: f64,
}

impl Path {
    pub(crate) fn move_to(&mut self, (x, y): Point) {
        self.flush();
        let to = (tenths(x), tenths(y));
        if self.data.is_empty() {
            self.command('M', &[to.0, to.1]);
        } else {
            self.command('m', &[to.0 - self.at.0, to.1 - self.at.1]);
        }
        self.at = to;
        self.start = to;
    }

    pub(crate) fn line_to(&mut self, (x, y): Point) {
        let to = (tenths(x), tenths(y));
        let (dx, dy) = (tenths(to.0 - self.at.0), tenths(to.1 - self.at.1));
        if dy == 0.0 {
            if dx * self.level < 0.0 {
                self.flush();
            }
            self.level += dx;
        } else {
            self.flush();
            if dx == 0.0 { self.command('v', &[dy]) } else { self.command('l', &[dx, dy]) }
        }
        self.at = to;
    }

    pub(crate) fn close(&mut self) {
        self.flush();
        self.data.push('z');
        self.at = self.start;
    }

    /// A whole run.
    pub(crate) fn run(&mut self, points: &[Point]) {
        let mut points = points.iter();
        points.next().into_iter().for_each(|first| self.move_to(*first));
        points.for_each(|point| self.line_to(*point));
    }

    pub(crate) fn data(mut self) -> String {
        self.flush();
        self.data
    }

    fn flush(&mut self) {
        let level = std::mem::take(&mut self.level);
        if tenths(level) != 0.0 {
            self.command('h', &[level]);
        }
    }

    fn command(&mut self, letter: char, numbers: &[f64]) {
        self.data.push(letter);
        for (index, value) in numbers.iter().enumerate() {
            let shown = number(*value, TENTHS);
            if index > 0 && !shown.starts_with('-') {
                self.data.push(' ');
            }
            self.data.push_str(&shown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases =
            [(0.0, "0"), (-0.001, "0"), (0.5, ".5"), (-0.256, "-.26"), (12.0, "12"), (1.005e3, "1005")];
        for (value, expected) in cases {
            assert_eq!(number(value, 100.0), expected);
        }
    }

    #[test]
    fn a_gap_begins_a_new_run_and_a_point_by_itself_is_seen() {
        let points =
            [Some((0.0, 1.0)), Some((1.0, 1.0)), None, None, Some((4.0, 2.0)), None, Some((9.5, 3.0))];
        let expected =
            [vec![(0.0, 1.0), (1.0, 1.0)], vec![(4.0, 2.0), (5.0, 2.0)], vec![(9.5, 3.0), (8.5, 3.0)]];
        assert_eq!(runs(points.into_iter(), 10.0), expected);
    }

    #[test]
    fn each_column_keeps_its_highest_and_lowest_point() {
        let run = [(0.0, 5.0), (0.2, 9.0), (0.4, 6.0), (0.6, 1.0), (0.8, 4.0), (1.0, 4.0), (1.5, 4.0)];
        assert_eq!(thinned(&run), [(0.0, 5.0), (0.2, 9.0), (0.6, 1.0), (1.0, 4.0), (1.5, 4.0)]);
        assert_eq!(thinned(&[]), []);
    }

    #[test]
    fn paths_are_relative_and_level_lines_are_one() {
        let mut path = Path::default();
        path.run(&[(10.0, 20.0), (11.0, 20.0), (12.04, 20.0), (12.0, 25.0), (13.0, 24.5)]);
        path.close();
        path.run(&[(1.0, 1.0), (3.0, 1.0), (2.0, 1.0)]);
        assert_eq!(path.data(), "M10 20h2v5l1-.5zm-9-19h2h-1");
    }
}
