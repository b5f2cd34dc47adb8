package main

import (
	"context"
	"slices"
	"strings"

	"navarch.io/navarch/cmd/navarchd/judge"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/admit/validate"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// webhookReviews reports whether the validation webhook reviews objects with this ID. It reviews the objects of Istio's
// kinds. The API server admits other objects whatever their problems.
func webhookReviews(id object.ID) bool { return strings.HasSuffix(id.Group, ".istio.io") }

// webhookRefusals returns the errors for which the validation webhook refuses an object to apply. The result is empty
// if the webhook admits it. The argument found has the problems of the object. Those in refusing are errors for the
// webhook alone (normal.Result.Refused). The snapshot after and the records of the object in it are for the checks that
// need types of Envoy.
func webhookRefusals(
	o *object.Object, found, refusing []object.Problem, after *mirror.Snapshot, records []model.Record,
) (all []object.Problem) {
	if !webhookReviews(o.ID) {
		return nil
	}
	add := func(p object.Problem) {
		at := func(have object.Problem) bool { return have.Field == p.Field && have.Severity == problem.Error }
		if p.ID, p.Severity, p.Location = o.ID, problem.Error, o.Location; !slices.ContainsFunc(all, at) {
			all = append(all, p)
		}
	}
	for _, p := range refusing {
		add(p)
	}
	for _, p := range found {
		if preview.Refuses(p) {
			add(p)
		}
	}
	for _, e := range validate.Violations(context.Background(), o) { // a definition is checked in bounded time
		add(object.Problem{Field: e.Field, Code: e.Code, Message: e.Message})
	}
	for _, r := range records {
		refused, _ := judge.Record(r, after)
		for _, err := range refused {
			p := model.ProblemOf(err, r.Meta().Key)
			add(object.Problem{Field: p.Field, Code: p.Code, Analyzer: p.Analyzer, Message: p.Full()})
		}
	}
	return all
}
