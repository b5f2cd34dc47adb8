package mirror

// Merge joins c and the change that follows it, later, into one change from c.Old to later.New. A record that returned
// to its old pointer is left out. A record that was replaced by an equal one is an edit, because its pointer differs in
// the new snapshot. Committed of the result is c.Committed, or later.Committed if c.Committed is zero. Merge changes
// neither c nor later, but the result may share their Edits.
func (c Change) Merge(later Change) Change {
	merged := Change{Old: c.Old, New: later.New, Committed: c.Committed}
	if merged.Committed.IsZero() {
		merged.Committed = later.Committed
	}
	if len(c.Edits) == 0 || len(later.Edits) == 0 {
		merged.Edits = append(c.Edits[:len(c.Edits):len(c.Edits)], later.Edits...)
		return merged
	}
	merged.Edits = make([]Edit, 0, len(c.Edits)+len(later.Edits))
	add := func(e Edit) {
		if e.Old != e.New { // pointers
			merged.Edits = append(merged.Edits, e)
		}
	}
	// Both are ordered by key.
	first, second := c.Edits, later.Edits
	for len(first) > 0 && len(second) > 0 {
		switch order := first[0].Key().Compare(second[0].Key()); {
		case order < 0:
			add(first[0])
			first = first[1:]
		case order > 0:
			add(second[0])
			second = second[1:]
		default:
			add(first[0].Then(second[0]))
			first, second = first[1:], second[1:]
		}
	}
	merged.Edits = append(append(merged.Edits, first...), second...)
	return merged
}

// Merge joins two successive changes in the box of a slow consumer (loop.NewBox). The consumer receives one change for
// all changes that it missed.
func Merge(waiting, next Change) Change { return waiting.Merge(next) }
