package main

import (
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// exceeding returns a function that compares the objects of a preview with tenants' budgets. It returns nil if no
// budget is set. The function uses the flags of this process, whereas the leader's flags apply when objects are stored.
// The chart sets the same values for all processes.
func (c *config) exceeding(tenantOf func(namespace string) string) func([]ingest.Proposed, *mirror.Snapshot) []object.Problem {
	if c.budget == (ingest.Budget{}) {
		return nil
	}
	system := c.normal().SystemNamespace
	return func(proposed []ingest.Proposed, known *mirror.Snapshot) []object.Problem {
		var stored []model.Record
		for _, kind := range model.Kinds() {
			for r := range known.All(kind) {
				stored = append(stored, r)
			}
		}
		return ingest.Exceeding(c.budget, proposed, stored, system, known.Mesh().Spec.GetRootNamespace(), tenantOf)
	}
}
