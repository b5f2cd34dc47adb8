package ingest

import (
	"maps"

	"navarch.io/navarch/store/analysis"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// crossCheck finds the problems between objects (store/analysis). It follows the wanted records, and examines only
// records that changed.
type crossCheck struct {
	records  map[model.Key]model.Record // the wanted records
	shown    *shown                     // has the problems that the last check found
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
		c.due = c.relocate(records) || c.due
	}
}

// relocate makes the next check determine the location of the records' problems again. It reports whether a record is
// new among those that the next check compares.
func (c *crossCheck) relocate(records []model.Record) (added bool) {
	if c.analysis == nil {
		return false
	}
	for _, r := range records {
		key := r.Meta().Key
		if _, noted := c.edited[key]; noted || !analysis.Reads(key.Kind) {
			continue
		}
		c.edited[key] = c.records[key]
		added = true
	}
	return added
}

// check examines the changed records, and passes the changes of the problems between objects to c.shown. After a panic
// of the analysis, they are one problem without an object, and the next check examines everything.
func (c *crossCheck) check(g *guard) {
	a := c.analysis
	c.due, c.analysis = false, nil
	whole := a == nil
	problems := g.run(&object.Object{}, func() {
		if whole {
			a = analysis.Of(c.settings, maps.Values(c.records))
		} else {
			a.Step(c.edits(a))
		}
	})
	c.edited = map[model.Key]model.Record{}
	if whole || problems != nil {
		c.shown.reset(ofAnalysis)
	}
	if problems != nil { // a panic of the analysis cannot be attributed to an object
		problems[0].Message = "a fault of this build: objects are not checked against each other; the log says why"
		c.shown.replace(ofAnalysis, nil, problems)
		return
	}
	gone, come := a.Changes()
	c.shown.replace(ofAnalysis, gone, come)
	c.analysis = a
}

// edits returns the records that differ from those of the analysis. The problems of the other noted records are located
// again.
func (c *crossCheck) edits(a *analysis.Analysis) (all []analysis.Edit) {
	for key, old := range c.edited {
		if now := c.records[key]; !same(old, now) {
			all = append(all, analysis.Edit{Old: old, New: now})
		} else {
			a.Relocate(key)
		}
	}
	return all
}

// same reports whether two records have the same hash; nil is a missing record.
func same(a, b model.Record) bool {
	return a == b || a != nil && b != nil && a.Meta().Hash == b.Meta().Hash
}
