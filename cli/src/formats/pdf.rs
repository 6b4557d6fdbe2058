//! The report as PDF, A4: tagged, with selectable text and drawings of lines, and the same bytes for the same report.

mod layout;

use std::num::NonZeroU16;
use std::sync::Arc;

use job_report::{Report, Thresholds};
use krilla::Data;
use krilla::color::rgb;
use krilla::destination::XyzDestination;
use krilla::geom::{PathBuilder, Point, Rect, Size, Transform};
use krilla::metadata::{DateTime, Metadata};
use krilla::outline::{Outline, OutlineNode};
use krilla::page::PageSettings;
use krilla::paint::Fill;
use krilla::surface::Surface;
use krilla::tagging::{
    Artifact, ArtifactType, ContentTag, Identifier, Node, TableHeaderScope, Tag, TagGroup, TagTree,
};
use krilla::text::{Font, TextDirection};
use krilla_svg::{SurfaceExt, SvgSettings};

use self::layout::{Ink, Item, Kind, Layout, PAGE, Part, Shape};
use super::document::Document;
pub use super::document::Options;

/// DejaVu fonts 2.37, whose licence is beside them. svg-plots knows their widths.
const REGULAR: &[u8] = include_bytes!("../../fonts/DejaVuSans.ttf");
const BOLD: &[u8] = include_bytes!("../../fonts/DejaVuSans-Bold.ttf");

/// Why there is no PDF.
#[derive(Debug, thiserror::Error)]
pub enum PdfError {
    /// The fonts of this program are not read.
    #[error("a font of this program is damaged")]
    Font,
    /// A drawing is no SVG.
    #[error("a drawing: {0}")]
    Drawing(#[from] usvg::Error),
    /// The document is none.
    #[error("the document: {0:?}")]
    Document(krilla::error::KrillaError),
}

/// What it is drawn with.
struct Fonts {
    regular: Font,
    bold: Font,
    drawings: usvg::Options<'static>,
}

/// The document.
pub fn render(report: &Report, thresholds: &Thresholds, options: &Options) -> Result<Vec<u8>, PdfError> {
    let content = Document::new(report, thresholds, options);
    let Layout { pages, parts, .. } = layout::layout(&content);
    let font = |bytes: &'static [u8]| Font::new(Data::from(bytes), 0).ok_or(PdfError::Font);
    let mut database = usvg::fontdb::Database::new();
    database.load_font_source(usvg::fontdb::Source::Binary(Arc::new(REGULAR)));
    let drawings = usvg::Options { fontdb: Arc::new(database), ..usvg::Options::default() };
    let fonts = Fonts { regular: font(REGULAR)?, bold: font(BOLD)?, drawings };
    let mut document = krilla::Document::new();
    let mut drawn: Vec<Vec<Identifier>> = parts.iter().map(|_| Vec::new()).collect();
    let outline = outline(&pages, &parts);
    for items in pages {
        #[allow(clippy::cast_possible_truncation, reason = "points of a page")]
        let Some(settings) = PageSettings::from_wh(PAGE.0 as f32, PAGE.1 as f32) else { continue };
        let mut page = document.start_page_with(settings);
        let mut surface = page.surface();
        for item in items {
            let tag = match item.part {
                Some(_) => ContentTag::Other,
                None => ContentTag::Artifact(Artifact::with_kind(ArtifactType::PaginationOther)),
            };
            let identifier = surface.start_tagged(tag);
            draw(&mut surface, &item, &fonts)?;
            surface.end_tagged();
            if let Some(part) = item.part.and_then(|part| drawn.get_mut(part)) {
                part.push(identifier);
            }
        }
        surface.finish();
        page.finish();
    }
    document.set_tag_tree(tags(&parts, drawn));
    document.set_outline(outline);
    document.set_metadata(metadata(report, &content));
    document.finish().map_err(PdfError::Document)
}

/// The sections, for the side of a reader.
fn outline(pages: &[Vec<Item<'_>>], parts: &[Part]) -> Outline {
    let mut outline = Outline::new();
    for (page, item) in
        pages.iter().enumerate().flat_map(|(at, page)| page.iter().map(move |item| (at, item)))
    {
        let part = item.part.and_then(|part| parts.get(part));
        if let (Some(Kind::Heading(2)), Shape::Text { text, size, .. }) =
            (part.map(|part| &part.kind), &item.shape)
        {
            #[allow(clippy::cast_possible_truncation, reason = "points of a page")]
            let at = Point::from_xy(item.at.0 as f32, (item.at.1 - size) as f32);
            outline.push_child(OutlineNode::new(text.clone(), XyzDestination::new(page, at)));
        }
    }
    outline
}

fn metadata(report: &Report, content: &Document) -> Metadata {
    let title = format!("{} {}", content.title, content.name).trim().to_owned();
    let metadata = Metadata::new()
        .title(title)
        .language("en".to_owned())
        .creator(concat!("jobledger ", env!("CARGO_PKG_VERSION")).to_owned())
        .description(content.verdict.1.clone());
    // Of the data: the same report has the same bytes whenever it is written.
    match date(report.job.until()) {
        Some(date) => metadata.creation_date(date),
        None => metadata,
    }
}

fn date(seconds: f64) -> Option<DateTime> {
    #[allow(clippy::cast_possible_truncation, reason = "what no Timestamp can be is none")]
    let at = jiff::Timestamp::from_second(seconds.floor() as i64).ok()?.to_zoned(jiff::tz::TimeZone::UTC);
    let small = |part: i8| u8::try_from(part).unwrap_or_default();
    Some(
        DateTime::new(u16::try_from(at.year()).ok()?)
            .month(small(at.month()))
            .day(small(at.day()))
            .hour(small(at.hour()))
            .minute(small(at.minute()))
            .second(small(at.second()))
            .utc_offset_hour(0)
            .utc_offset_minute(0),
    )
}

/// The tree of what is drawn: parts are in their order, each after what it is in.
fn tags(parts: &[Part], drawn: Vec<Vec<Identifier>>) -> TagTree {
    let mut groups: Vec<TagGroup> = parts
        .iter()
        .zip(drawn)
        .map(|(part, drawn)| {
            let children = drawn.into_iter().map(Node::from).collect();
            match &part.kind {
                Kind::Heading(level) => {
                    let level = NonZeroU16::new(*level).unwrap_or(NonZeroU16::MIN);
                    TagGroup::with_children(Tag::Hn(level, None), children)
                }
                Kind::Paragraph => TagGroup::with_children(Tag::P, children),
                Kind::Figure(text) => TagGroup::with_children(Tag::Figure(Some(text.clone())), children),
                Kind::Table => TagGroup::with_children(Tag::Table, children),
                Kind::Row => TagGroup::with_children(Tag::TR, children),
                Kind::Head => TagGroup::with_children(Tag::TH(TableHeaderScope::Both), children),
                Kind::Cell => TagGroup::with_children(Tag::TD, children),
            }
        })
        .collect();
    let mut tree = TagTree::new().with_lang(Some("en".to_owned()));
    // From the last one on: what is in a part is after it.
    let mut first = Vec::new();
    for part in parts.iter().rev() {
        let Some(mut group) = groups.pop() else { break };
        group.children.reverse();
        match part.parent.and_then(|parent| groups.get_mut(parent)) {
            Some(parent) => parent.push(group),
            None => first.push(group),
        }
    }
    first.into_iter().rev().for_each(|group| tree.push(group));
    tree
}

#[allow(clippy::cast_possible_truncation, reason = "points of a page")]
fn draw(surface: &mut Surface<'_>, item: &Item<'_>, fonts: &Fonts) -> Result<(), PdfError> {
    let (x, y) = (item.at.0 as f32, item.at.1 as f32);
    surface.set_fill(Some(Fill { paint: colour(item.ink).into(), ..Fill::default() }));
    match &item.shape {
        Shape::Text { text, size, bold } => {
            let font = if *bold { &fonts.bold } else { &fonts.regular };
            let at = Point::from_xy(x, y);
            surface.draw_text(at, font.clone(), *size as f32, text, false, TextDirection::Auto);
        }
        Shape::Rect(width, height) => {
            if let Some(rect) = Rect::from_xywh(x, y, *width as f32, *height as f32) {
                let mut path = PathBuilder::new();
                path.push_rect(rect);
                path.finish().iter().for_each(|path| surface.draw_path(path));
            }
        }
        Shape::Svg(svg, width, height) => {
            let tree = usvg::Tree::from_str(svg, &fonts.drawings)?;
            if let Some(size) = Size::from_wh(*width as f32, *height as f32) {
                surface.push_transform(&Transform::from_translate(x, y));
                surface.draw_svg(&tree, size, SvgSettings::default());
                surface.pop();
            }
        }
    }
    Ok(())
}

/// Those of the HTML page in light.
fn colour(ink: Ink) -> rgb::Color {
    let (red, green, blue) = match ink {
        Ink::Text => (0x1f, 0x23, 0x28),
        Ink::Quiet => (0x57, 0x60, 0x6a),
        Ink::Line => (0xd0, 0xd7, 0xde),
        Ink::Raised => (0xf6, 0xf8, 0xfa),
        Ink::Bad => (0xb4, 0x23, 0x18),
        Ink::Warning => (0x8a, 0x5a, 0x00),
        Ink::Hint => (0x0b, 0x5c, 0xad),
        Ink::Good => (0x1a, 0x6b, 0x35),
    };
    rgb::Color::new(red, green, blue)
}

#[cfg(test)]
mod tests;
