package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"navarch.io/navarch/cmd/navarchctl/progress"
	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// offline computes the report in this process, with the folder of --config-dir as the configuration before the change.
// If an object is refused, nothing is planned. With --prune, the objects to delete are added to c.
func (p *planning) offline(ctx context.Context, c *change, warnings io.Writer) (*preview.Report, error) {
	defer progress.Work(ctx, "planning")()
	events, problems, err := p.from.events()
	if err != nil {
		return nil, err
	}
	if p.prune != "" {
		var there []*object.Object
		for _, e := range events {
			if e.Op == object.Put {
				there = append(there, e.Object)
			}
		}
		if err := c.pruneTo(p.prune, there); err != nil {
			return nil, fmt.Errorf("--prune: %w", err)
		}
	}
	before, _, err := p.from.snapshot(events)
	if err != nil {
		return nil, err
	}
	after, found, refused, err := p.from.reviewed(c.applied(events))
	if err != nil {
		return nil, err
	}
	reportProblems(warnings, problems)
	proposed := c.proposals(before, after, found, refused)
	within := preview.BoundsOf(p.named, p.envoy != "")
	made := &preview.Plan{Revision: before.Revision(), Objects: proposed}
	if slices.ContainsFunc(proposed, func(o preview.Object) bool { return o.Act == preview.Refused }) {
		return made.Report(within), nil
	}
	base, err := p.base(before)
	if err != nil {
		return nil, err
	}
	if made, err = p.within.Of(ctx, base, over(before, after), nil); err != nil {
		return nil, err
	}
	if made.Objects = proposed; p.nodes == "" {
		withoutShares(made)
	}
	return made.Report(within), nil
}

// withoutShares removes the risks that depend on a share of all proxies, because --proxy names only some of the
// proxies.
func withoutShares(made *preview.Plan) {
	made.Summary.Risks = slices.DeleteFunc(made.Summary.Risks, func(r meaning.RiskLine) bool {
		return slices.Contains([]meaning.Code{meaning.ManyProxies, meaning.ViewsMultiply, meaning.PatchWithoutMatch}, r.Code)
	})
}

// over returns the change from the snapshot base to the snapshot next. For unchanged records it uses the pointers in
// base, because the planner compares pointers.
func over(base, next *mirror.Snapshot) mirror.Change {
	var puts []model.Record
	var deletes []model.Key
	for _, e := range mirror.Diff(base, next).Edits {
		if e.New == nil {
			deletes = append(deletes, e.Key())
		} else {
			puts = append(puts, e.New)
		}
	}
	return base.Apply(base.Revision()+1, puts, deletes)
}

// applied returns the folder's events after the change, and the later events that apply objects. Deleted objects are
// omitted. As at the API server, a replaced object keeps its creation time. An object that the webhook does not review
// is in both lists, because it stays in effect if its replacement is invalid. The argument events is not modified.
func (c *change) applied(events []object.Event) (all, later []object.Event) {
	changed := map[object.ID]time.Time{} // creation times of the folder's objects; zero: unknown
	for _, o := range slices.Concat(c.put, c.removed) {
		changed[o.ID] = time.Time{}
	}
	for _, e := range events {
		_, is := changed[e.ID]
		if is && e.Op == object.Put {
			changed[e.ID] = e.Object.Created
		}
		removed := slices.ContainsFunc(c.removed, func(o *object.Object) bool { return o.ID == e.ID })
		if !is || !removed && !webhookReviews(e.ID) {
			all = append(all, e)
		}
	}
	for _, o := range c.put {
		if created := changed[o.ID]; !created.IsZero() {
			aged := *o
			aged.Created, o = created, &aged
		}
		later = append(later, object.Event{Op: object.Put, ID: o.ID, Object: o, Location: o.Location})
	}
	return all, later
}

// proposals describes the effect of the change on each object, beginning with the objects to apply. It marks an object
// to apply as refused if Navarch does not read its kind or version, or if the validation webhook would refuse it
// (webhookRefusals). It marks an object to delete as refused if the snapshot before the change has no records of the
// object, except with --prune.
//
// The argument found has the problems of all objects after the change. For each object, refused has the warnings among
// these problems for which the webhook refuses the object (normal.Result.Refused). For objects to apply, proposals
// makes them errors, as the webhook does.
func (c *change) proposals(
	before, after *mirror.Snapshot, found []object.Problem, refused map[object.ID][]object.Problem,
) (all []preview.Object) {
	was, is := recordsOf(before), recordsOf(after)
	for i, o := range slices.Concat(c.put, c.removed) {
		d, removed := preview.Object{ID: o.ID, Act: preview.ActOf(was[o.ID], is[o.ID]), Hash: preview.HashOf(was[o.ID])}, i >= len(c.put)
		own := slices.DeleteFunc(slices.Clone(found), func(p object.Problem) bool { return p.ID != o.ID })
		if !removed {
			d.Problems = webhookRefusals(o, own, refused[o.ID], after, is[o.ID])
		}
		refusing := len(d.Problems) > 0
		for _, one := range own {
			errorAt := func(p object.Problem) bool { return p.Field == one.Field && p.Message == one.Message }
			if !slices.ContainsFunc(d.Problems, errorAt) {
				d.Problems = append(d.Problems, one)
			}
		}
		field, unread := normal.Unserved(o)
		switch {
		case !removed && unread != "":
			d.Act = preview.Refused
			d.Problems = []object.Problem{{ID: o.ID, Field: field, Code: problem.NotSupported, Severity: problem.Error, Message: unread}}
		case removed && len(was[o.ID]) == 0 && !c.pruned:
			d.Act = preview.Refused
			d.Problems = []object.Problem{{ID: o.ID, Code: problem.NotFound, Severity: problem.Error, Message: "does not exist"}}
		case refusing:
			d.Act = preview.Refused
		}
		all = append(all, d)
	}
	return all
}

// recordsOf groups the records of a snapshot by the object that each was made from.
func recordsOf(s *mirror.Snapshot) map[object.ID][]model.Record {
	all := map[object.ID][]model.Record{}
	for _, kind := range model.Kinds() {
		for r := range s.All(kind) {
			id := normal.SourceObject(r.Meta().Key)
			all[id] = append(all[id], r)
		}
	}
	return all
}

// base plans a snapshot for the proxies of --proxy and --nodes.
func (p *planning) base(s *mirror.Snapshot) (*plan.Base, error) {
	nodes, err := p.readNodes()
	if err != nil {
		return nil, err
	}
	return baseOf(s, p.from.cluster, nodes)
}

// baseOf plans a snapshot for the given proxies, as the state before a change. The argument cluster is the name of the
// config cluster.
func baseOf(s *mirror.Snapshot, cluster string, nodes []view.Node) (*plan.Base, error) {
	r := resolve.New(nil)
	planner := plan.New(plan.Settings{Snapshot: r.Step(mirror.Diff(mirror.Empty(), s)).New, Cluster: cluster})
	for _, n := range nodes {
		if _, err := join(planner, n); err != nil {
			return nil, err
		}
	}
	return &plan.Base{Planner: planner, Resolver: r}, nil
}

// readNodes reads the Envoy nodes of --proxy and --nodes. It is an error if no node is given, or one cannot be parsed.
func (p *planning) readNodes() (all []view.Node, err error) {
	for _, path := range p.proxies {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("--proxy: %w", err)
		}
		n, err := p.from.parseNode(path, raw)
		if err != nil {
			return nil, fmt.Errorf("--proxy: %w", err)
		}
		all = append(all, n)
	}
	if p.nodes != "" {
		raw, err := os.ReadFile(p.nodes)
		if err != nil {
			return nil, fmt.Errorf("--nodes: %w", err)
		}
		for i, one := range bytes.Split(append([]byte("\n"), raw...), []byte("\n---")) {
			if len(bytes.TrimSpace(one)) == 0 {
				continue
			}
			n, err := p.from.parseNode(fmt.Sprintf("%s#%d", p.nodes, i+1), one)
			if err != nil {
				return nil, fmt.Errorf("--nodes: %w", err)
			}
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("--config-dir needs the proxies: --proxy NODE.json or --nodes FILE")
	}
	return all, nil
}
