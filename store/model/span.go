package model

import "time"

// Span is a range of the store's revisions, both inclusive. The zero Span is empty.
type Span struct {
	First, Last int64
	Since       time.Time // time at which the leader wrote First, by its clock; zero: unknown
}

// Join returns the smallest span that contains both. Its Since is the earlier known time.
func (s Span) Join(o Span) Span {
	switch {
	case o.Last == 0:
		return s
	case s.Last == 0:
		return o
	}
	s.First, s.Last = min(s.First, o.First), max(s.Last, o.Last)
	if s.Since.IsZero() || !o.Since.IsZero() && o.Since.Before(s.Since) {
		s.Since = o.Since
	}
	return s
}
