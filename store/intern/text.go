package intern

import "unique"

// Text returns a string equal to text, in memory that equal results share. It is for texts that occur in thousands of
// objects. A text that occurs once needs more memory with Text than without. Text is safe for concurrent use.
func Text(text string) string { return unique.Make(text).Value() }
