package debug

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/admit/validate"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/files"
)

// The bounds of a preview. MaxPlanBody is the maximum size of the request's body. PlanBudget is the maximum time,
// including the wait for other previews; the API enforces it. This process makes one preview at a time, because each
// preview needs a copy of the plan.
const (
	MaxPlanBody    = 4 << 20 // bytes
	maxPlanObjects = 500
	maxDocuments   = 10 * maxPlanObjects // YAML documents, including empty ones; hundreds of thousands would take seconds to parse
	PlanBudget     = 25 * time.Second
)

// Plan previews a change of objects: its effect on the visible proxies of this process. In the preview, the objects in
// body are applied. With the parameter delete=true in q they are deleted instead, and with removed=N the last N of
// them are deleted. With scope (preview.ParseScope) the preview is about some proxies. With proxies=true the report
// names all affected proxies. With bootstraps=true the report has the configuration of the first groups of proxies,
// for validation by Envoy. Plan waits for the caller's turn, and for other previews. Previews do not delay costly
// pages.
//
// The int is the status of the HTTP response, which is 200 without an error. Errors have these statuses. 404: the
// process does not have role xds. 400: the body or a parameter is not valid. 403: an object belongs to another tenant.
// 413: plan.ErrNoRoom. 503: any other error of the preview. 429: the caller has too many unfinished requests, or ctx
// ended before the caller's turn. It is not an error if the validation webhook would refuse an object. The report then
// has the object and the object's problems.
func (p *Pages) Plan(ctx context.Context, who authz.Caller, body []byte, q url.Values) (*preview.Report, int, error) {
	turn, err := p.turns.Take(ctx, web.Question{Caller: who.Name, Tenant: who.Tenant, Place: p.previews})
	if err != nil {
		return nil, http.StatusTooManyRequests, err
	}
	defer turn.Done() // the size of a report is bounded, so reading it need not be awaited
	return p.report(ctx, who, body, q)
}

// report does the work of Plan during the caller's turn.
func (p *Pages) report(ctx context.Context, who authz.Caller, body []byte, q url.Values) (*preview.Report, int, error) {
	if p.Previewer == nil {
		return nil, http.StatusNotFound, errors.New(fleetapi.ServesNone + ": ask one with role xds")
	}
	objects, err := objectsIn(body)
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	removed, err := removedOf(q, len(objects))
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	scope, err := preview.ParseScope(q.Get("scope"))
	if err != nil {
		return nil, http.StatusBadRequest, fmt.Errorf("parameter %w", err)
	}
	for _, o := range objects {
		if !who.Sees.Of(o.ID.Namespace) {
			return nil, http.StatusForbidden, fmt.Errorf("%v: its namespace is not of your tenant", o.ID)
		}
	}
	made, err := p.Previewer.Preview(ctx, who, scope, validate.Proposal{Objects: objects[:len(objects)-removed],
		Removed: objects[len(objects)-removed:], Alone: who.Sees != nil})
	if errors.Is(err, plan.ErrNoRoom) {
		return nil, http.StatusRequestEntityTooLarge, err
	}
	if err != nil {
		return nil, http.StatusServiceUnavailable, err
	}
	return made.Report(preview.BoundsOf(q.Get("proxies") == "true", q.Get("bootstraps") == "true")), http.StatusOK, nil
}

// removedOf returns the number of objects to delete, which are the last ones of n objects. The error names the
// parameter.
func removedOf(q url.Values, n int) (int, error) {
	text, all := q.Get("removed"), q.Get("delete") == "true"
	switch {
	case all && text != "":
		return 0, fmt.Errorf("parameter removed=%.20q: delete=true deletes all objects", text)
	case all:
		return n, nil
	case text == "":
		return 0, nil
	}
	removed, err := strconv.Atoi(text)
	if err != nil || removed < 0 || removed > n {
		return 0, fmt.Errorf("parameter removed=%.20q: want 0 to %d, the number of the objects", text, n)
	}
	return removed, nil
}

// objectsIn parses the objects of a body, at most maxPlanObjects. The error names the first object that cannot be read.
func objectsIn(body []byte) (all []*object.Object, err error) {
	if n := bytes.Count(body, []byte("\n---")); n > maxDocuments {
		return nil, fmt.Errorf("the request has %d documents: at most %d objects may be planned at once", n, maxPlanObjects)
	}
	events, _ := files.Parse("objects", body)
	for _, e := range events {
		if e.Op == object.Broken {
			if e.ID.Kind != "" {
				return nil, fmt.Errorf("%s: %v: %s", e.Location, e.ID, e.Problem)
			}
			return nil, fmt.Errorf("%s: %s", e.Location, e.Problem)
		}
		all = append(all, e.Object)
	}
	switch {
	case len(all) == 0:
		return nil, errors.New("the request has no objects: POST them as YAML documents or JSON")
	case len(all) > maxPlanObjects:
		return nil, fmt.Errorf("the request has %d objects: at most %d may be planned at once", len(all), maxPlanObjects)
	}
	return all, nil
}

// Previewer previews changes of objects. Proposals and Base are required.
type Previewer struct {
	Proposals *validate.Webhook // validates objects and applies them to a copy of a snapshot
	// Base returns a copy of the plan that the preview may change.
	Base func(ctx context.Context) (*plan.Base, error)
	// Afford returns plan.ErrNoRoom if the process has no memory for a change. nil: every change is previewed.
	Afford func(ctx context.Context, c mirror.Change) error
	// Budgets returns a problem for each proposed object that would exceed its tenant's budget, given the objects in
	// the snapshot known. nil: there are no budgets.
	Budgets func(proposed []ingest.Proposed, known *mirror.Snapshot) []object.Problem
}

// Preview computes the effect of a change of objects on the visible proxies of a scope. It does not make the change. If
// the webhook would refuse one of the objects, the result lists the objects and their problems, but no effects. Errors
// are those of Base, of Afford and of preview.Of.
func (p *Previewer) Preview(ctx context.Context, who authz.Caller, scope preview.Scope, of validate.Proposal) (*preview.Plan, error) {
	base, err := p.Base(ctx)
	if err != nil {
		return nil, err
	}
	known := base.Resolver.Source()
	change, proposed := p.Proposals.Propose(ctx, known, of)
	described := described(proposed)
	if slices.ContainsFunc(described, func(o preview.Object) bool { return o.Act == preview.Refused }) {
		return &preview.Plan{Revision: known.Revision(), Objects: described}, nil
	}
	if p.Afford != nil {
		if err := p.Afford(ctx, change); err != nil {
			return nil, err
		}
	}
	made, err := scope.Of(ctx, base, change, preview.Sees(who.Sees))
	if err != nil {
		return nil, err
	}
	made.Objects = described
	if p.Budgets != nil {
		p.exceeding(made, known, proposed)
	}
	return made, nil
}

// exceeding adds a risk for each object that its tenant's budget would not permit.
func (p *Previewer) exceeding(made *preview.Plan, known *mirror.Snapshot, proposed []validate.Proposed) {
	var of []ingest.Proposed
	for _, d := range proposed {
		of = append(of, ingest.Proposed{ID: d.ID, Records: d.Is})
	}
	for _, refused := range p.Budgets(of, known) {
		object := refused.ID.String()
		made.Summary.Add(meaning.Risk{Code: meaning.BudgetExceeded, Level: meaning.High, Subject: object, Text: refused.Message,
			Objects: []string{object}}, meaning.Count{Views: len(made.Views), Proxies: made.Affected()})
	}
}

// rank returns a number by which problems are sorted: 0 for an error, 1 for a warning.
func rank(p object.Problem) int {
	if p.Severity == problem.Error {
		return 0
	}
	return 1
}

// described returns the effect of the change on each object. For a refused object, errors come before warnings.
func described(proposed []validate.Proposed) (all []preview.Object) {
	for _, d := range proposed {
		o := preview.Object{ID: d.ID, Act: preview.ActOf(d.Was, d.Is), Hash: preview.HashOf(d.Was), Problems: d.Problems}
		if d.Refused {
			o.Act = preview.Refused
			slices.SortStableFunc(o.Problems, func(a, b object.Problem) int { return rank(a) - rank(b) })
		}
		all = append(all, o)
	}
	return all
}
