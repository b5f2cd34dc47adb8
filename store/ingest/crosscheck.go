package ingest

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/analysis"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// crossCheck finds the problems between objects (store/analysis). It follows the wanted records, and examines only
// records that changed.
type crossCheck struct {
	records  map[model.Key]model.Record // the wanted records
	locate   func(object.ID) string     // the location of an object
	settings analysis.Settings
	analysis *analysis.Analysis // nil: the next check examines everything
	// edited has the records that may have changed, in the version that analysis knows. A nil record is unknown to
	// analysis.
	edited map[model.Key]model.Record
	due    bool // records changed since the last check
}

// note stores the present versions of records before they are replaced in c.records.
func (c *crossCheck) note(replaced ...[]model.Record) {
	if c.analysis == nil {
		c.due = true
		return
	}
	for _, records := range replaced {
		for _, r := range records {
			key := r.Meta().Key
			if _, noted := c.edited[key]; noted || !analysis.Reads(key.Kind) {
				continue
			}
			c.edited[key] = c.records[key]
			c.due = true
		}
	}
}

// check returns the problems between objects, ordered by normal.CompareProblems. After a panic of the analysis it
// returns one problem without an object.
func (c *crossCheck) check(g *guard) []object.Problem {
	c.due = false
	found := c.examine(g)
	if len(found) == 0 {
		return nil
	}
	found = slices.Clone(found)
	for i, p := range found {
		if at := c.locate(p.ID); at != "" {
			found[i].Location = at
		}
	}
	slices.SortFunc(found, normal.CompareProblems)
	return found
}

// examine passes the changed records to the analysis. A panic of the analysis cannot be attributed to an object. The
// next check then examines everything.
func (c *crossCheck) examine(g *guard) (found []object.Problem) {
	a := c.analysis
	c.analysis = nil
	problems := g.run(&object.Object{}, func() {
		if a == nil {
			a = analysis.Of(c.settings, maps.Values(c.records))
		} else {
			a.Step(c.edits())
		}
		found = a.Problems()
	})
	c.edited = map[model.Key]model.Record{}
	if problems != nil {
		problems[0].Message = "a fault of this build: objects are not checked against each other; the log says why"
		return problems
	}
	c.analysis = a
	return found
}

// edits returns the records that differ from those of the analysis.
func (c *crossCheck) edits() (all []analysis.Edit) {
	for key, old := range c.edited {
		if now := c.records[key]; !same(old, now) {
			all = append(all, analysis.Edit{Old: old, New: now})
		}
	}
	return all
}

// same reports whether two records have the same hash; nil is a missing record.
func same(a, b model.Record) bool {
	return a == b || a != nil && b != nil && a.Meta().Hash == b.Meta().Hash
}
