//! Reads a drawing as any program would, and says what is wrong with it.

use roxmltree::{Document, Node};

/// A box: left, top, right, bottom.
pub(crate) type Area = [f64; 4];

/// What is in a drawing.
#[derive(Debug, Default)]
pub(crate) struct Drawing {
    pub(crate) size: (f64, f64),
    /// Text with its box.
    pub(crate) texts: Vec<(String, Area)>,
    /// Class, attributes and corners of each path, a list for each of its parts.
    pub(crate) paths: Vec<Shape>,
}

/// A path.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) class: String,
    pub(crate) stroke_width: f64,
    pub(crate) parts: Vec<Vec<(f64, f64)>>,
}

impl Drawing {
    pub(crate) fn words(&self) -> Vec<&str> {
        self.texts.iter().map(|(text, _)| text.as_str()).collect()
    }

    /// The paths of a class.
    pub(crate) fn of_class(&self, class: &str) -> Vec<&Shape> {
        self.paths.iter().filter(|path| path.class == class).collect()
    }
}

/// # Panics
/// If it is not XML, or uses what no page or PDF should have.
pub(crate) fn read(svg: &str) -> Drawing {
    let document = Document::parse(svg).unwrap_or_else(|e| panic!("{e}: {svg}"));
    let root = document.root_element();
    assert_eq!(root.tag_name().namespace(), Some("http://www.w3.org/2000/svg"));
    assert_eq!(root.attribute("role"), Some("img"));
    let title =
        root.children().find(|node| node.has_tag_name("title")).map(|node| node.text().unwrap_or_default());
    assert_eq!(title, root.attribute("aria-label"), "what a screen reader says is the title");
    let mut drawing = Drawing { size: (number(root, "width"), number(root, "height")), ..Drawing::default() };
    let view = format!("0 0 {} {}", root.attribute("width").unwrap(), root.attribute("height").unwrap());
    assert_eq!(root.attribute("viewBox"), Some(view.as_str()));
    for node in root.descendants().filter(Node::is_element) {
        for attribute in node.attributes() {
            assert!(
                !attribute.name().starts_with("on") && !["id", "style", "href"].contains(&attribute.name())
            );
        }
        match node.tag_name().name() {
            "svg" | "title" | "desc" => {}
            "text" => drawing.texts.push(text(node)),
            "path" => drawing.paths.push(Shape {
                class: node.attribute("class").unwrap_or_default().to_owned(),
                stroke_width: node.attribute("stroke-width").map_or(0.0, |_| number(node, "stroke-width")),
                parts: parts(node.attribute("d").unwrap()),
            }),
            other => panic!("an element {other}"),
        }
    }
    drawing
}

/// A number with two decimals at most.
fn finite(text: &str) -> f64 {
    let value: f64 = text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"));
    assert!(value.is_finite() && !text.contains(['e', 'E']), "{text}");
    assert!(text.split_once('.').is_none_or(|(_, decimals)| decimals.len() <= 2), "{text} is long");
    value
}

fn number(node: Node<'_, '_>, name: &str) -> f64 {
    finite(node.attribute(name).unwrap_or_else(|| panic!("no {name}")))
}

fn text(node: Node<'_, '_>) -> (String, Area) {
    let text = node.text().unwrap_or_default().to_owned();
    let (x, y) = (number(node, "x"), number(node, "y"));
    let size = node.attribute("font-size").map_or(10.0, finite);
    let width = svg_plots::text_width(&text, size);
    let left = match node.attribute("text-anchor") {
        None => x,
        Some("middle") => x - width / 2.0,
        Some("end") => x - width,
        Some(other) => panic!("an anchor {other}"),
    };
    // Letters of DejaVu Sans are within this.
    (text, [left, y - 0.76 * size, left + width, y + 0.24 * size])
}

/// The corners of a path, from the grammar of SVG 2, 9.3.9, as far as a drawing may use it.
fn parts(data: &str) -> Vec<Vec<(f64, f64)>> {
    let mut parts: Vec<Vec<(f64, f64)>> = Vec::new();
    let (mut at, mut start) = ((0.0, 0.0), (0.0, 0.0));
    let commands = data.split_inclusive(|c: char| c.is_ascii_alphabetic());
    // Each piece but the first begins with the numbers of the command before.
    let mut letter = None;
    for piece in commands.chain([""]) {
        let (numbers, next) = match piece.char_indices().last() {
            Some((index, c)) if c.is_ascii_alphabetic() => (&piece[..index], Some(c)),
            _ => (piece, None),
        };
        let spaced = numbers.replace('-', " -");
        let numbers: Vec<f64> = spaced.split_whitespace().map(finite).collect();
        match (letter, numbers.as_slice()) {
            (None, []) => {}
            (Some(c @ ('M' | 'm')), [x, y]) => {
                at = if c == 'M' { (*x, *y) } else { (at.0 + x, at.1 + y) };
                start = at;
                parts.push(vec![at]);
            }
            (Some('l'), [x, y]) => at = (at.0 + x, at.1 + y),
            (Some('h'), [x]) => at.0 += x,
            (Some('v'), [y]) => at.1 += y,
            (Some('z'), []) => at = start,
            other => panic!("{other:?} in {data}"),
        }
        if matches!(letter, Some('l' | 'h' | 'v' | 'z')) {
            parts.last_mut().expect("a path begins with a move").push(at);
        }
        letter = next;
    }
    parts
}

/// # Panics
/// If something is outside of the drawing, or text lies on text.
pub(crate) fn holds(svg: &str) -> Drawing {
    let drawing = read(svg);
    let (width, height) = drawing.size;
    let inside = |x: f64, y: f64| (-0.1..=width + 0.1).contains(&x) && (-0.1..=height + 0.1).contains(&y);
    for shape in &drawing.paths {
        for (x, y) in shape.parts.iter().flatten() {
            assert!(inside(*x, *y), "({x}, {y}) is not in the drawing: {svg}");
        }
    }
    for (index, (text, area)) in drawing.texts.iter().enumerate() {
        let [left, top, right, bottom] = *area;
        assert!(
            inside(left, top) && inside(right, bottom),
            "{text:?} is cut: {area:?} of {:?}",
            drawing.size
        );
        for (other, [l, t, r, b]) in &drawing.texts[..index] {
            let apart = right <= *l || *r <= left || bottom <= *t || *b <= top;
            assert!(apart, "{text:?} lies on {other:?}: {svg}");
        }
        let shown = |c: char| {
            !c.is_control()
                && !('\u{202a}'..='\u{202e}').contains(&c)
                && !('\u{2066}'..='\u{2069}').contains(&c)
        };
        assert!(text.chars().all(shown), "{text:?}");
    }
    drawing
}
