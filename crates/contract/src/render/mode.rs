//! The choice between porcelain and JSON.

words! {
    /// The form of a result's text.
    #[derive(Default)]
    pub enum RenderMode {
        /// Lines for a reader, summary first.
        #[default]
        Porcelain = "porcelain",
        /// The result's own JSON.
        Json = "json",
    }
}
