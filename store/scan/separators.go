package scan

// Separators counts the commas of a JSON text that comes in pieces, but for those in strings: a text has more values than that. What is no JSON counts in
// some way.
type Separators struct {
	Commas int

	quoted, escaped bool
}

// Add counts the next piece.
func (s *Separators) Add(piece []byte) {
	for _, c := range piece {
		switch {
		case s.escaped:
			s.escaped = false
		case c == '\\':
			s.escaped = s.quoted
		case c == '"':
			s.quoted = !s.quoted
		case c == ',' && !s.quoted:
			s.Commas++
		}
	}
}
