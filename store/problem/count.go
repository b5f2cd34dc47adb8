package problem

// Count counts problems by severity.
type Count struct{ Errors, Warnings int }

// Add adds n problems of a severity; n may be negative. Every severity other than Error counts as a warning.
func (c *Count) Add(s Severity, n int) {
	if s == Error {
		c.Errors += n
	} else {
		c.Warnings += n
	}
}
