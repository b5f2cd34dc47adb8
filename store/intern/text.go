package intern

import "unique"

// Text returns a copy of a text that equal texts share while any of them is in use. It is for texts that thousands of
// objects have. A text that occurs once takes more memory with Text than without.
func Text(text string) string { return unique.Make(text).Value() }
