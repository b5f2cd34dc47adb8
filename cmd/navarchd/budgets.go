package main

import (
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
)

// exceeding returns a function that compares previewed objects with tenants' budgets; nil if no budget is set. The
// function uses the flags of this process. For objects that are stored, the flags of the leader apply; the chart sets
// the same values for all processes.
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
