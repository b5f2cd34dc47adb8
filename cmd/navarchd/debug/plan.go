package debug

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/admit/validate"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/files"
)

// PlanPath is the page that previews a change of objects: POST with the objects as YAML documents or JSON, and with
// ?delete=true if they are deleted. The answer is a preview.Report.
const PlanPath = "/debug/plan"

// The bounds of a preview. This process makes one at a time, because each has a copy of the plan.
const (
	maxPlanBody    = 4 << 20 // bytes
	maxPlanObjects = 500
	maxPlanBodies  = 2                // of one tenant, or of one caller who sees everything
	planBody       = 10 * time.Second // to send the body
	planBudget     = 25 * time.Second // with the wait for other previews
)

// errPlanBusy is the error of a preview that waited too long.
var errPlanBusy = errors.New("other previews are being made: try again")

// plan serves PlanPath.
func (p *Pages) plan(who authz.Caller, w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), planBudget)
	defer cancel()
	refuse := func(status int, err error) {
		if status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, err.Error(), status)
	}
	// A caller's turn begins once the body is there, so that slow clients do not hold the turns of others.
	body, err := p.bodies.Take(ctx, web.Question{Caller: cmp.Or(who.Tenant, who.Name)})
	if err != nil {
		refuse(http.StatusTooManyRequests, err)
		return
	}
	defer body.Done()
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(planBody)) // recorders of tests have no deadline
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPlanBody))
	if err != nil {
		refuse(http.StatusBadRequest, err)
		return
	}
	made, read, err := p.Turn(ctx, who, true)
	if err != nil {
		refuse(http.StatusTooManyRequests, err)
		return
	}
	defer read()
	report, status, err := p.report(ctx, who, data, r.URL.Query().Get("delete") == "true")
	made()
	if err != nil {
		refuse(status, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(report) // an error means that the client has disconnected
}

// report previews the change of the objects in a body. An error comes with the status of the response.
func (p *Pages) report(ctx context.Context, who authz.Caller, body []byte, gone bool) (*preview.Report, int, error) {
	if p.Proxies == nil || p.Proxies.Proposals == nil {
		return nil, http.StatusNotFound, errors.New("this process serves no proxies: ask one with role xds")
	}
	objects, err := objectsIn(body)
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	for _, o := range objects {
		if !who.Sees.Of(o.ID.Namespace) {
			return nil, http.StatusForbidden, fmt.Errorf("%v: its namespace is not of your tenant", o.ID)
		}
	}
	select {
	case p.previews <- struct{}{}:
		defer func() { <-p.previews }()
	case <-ctx.Done():
		return nil, http.StatusTooManyRequests, errPlanBusy
	}
	made, err := p.Proxies.preview(ctx, who, objects, gone)
	if errors.Is(err, plan.ErrNoRoom) {
		return nil, http.StatusRequestEntityTooLarge, err
	}
	if err != nil {
		return nil, http.StatusServiceUnavailable, err
	}
	return made.Report(preview.Usual), http.StatusOK, nil
}

// objectsIn parses the objects of a body. The error names the first object that cannot be read.
func objectsIn(body []byte) (all []*object.Object, err error) {
	events, _ := files.Parse("objects", body)
	for _, e := range events {
		if e.Op == object.Broken {
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

// preview plans a change of objects for the visible proxies of this process.
func (p *Proxies) preview(ctx context.Context, who authz.Caller, objects []*object.Object, gone bool) (*preview.Plan, error) {
	base, err := p.Planner.Base(ctx)
	if err != nil {
		return nil, err
	}
	known := base.Resolver.Source()
	change, proposed := p.Proposals.Propose(ctx, known, validate.Proposal{Objects: objects, Gone: gone, Alone: who.Sees != nil})
	described := described(proposed)
	if slices.ContainsFunc(described, func(o preview.Object) bool { return o.Act == preview.Refused }) {
		return &preview.Plan{Revision: known.Revision(), Objects: described}, nil
	}
	if err := p.Planner.Afford(ctx, change); err != nil {
		return nil, err
	}
	made, err := preview.Of(ctx, base, change, preview.Sees(who.Sees))
	if err != nil {
		return nil, err
	}
	made.Objects = described
	return made, nil
}

// rank orders the problems of a refused object: errors first.
func rank(p object.Problem) int {
	if p.Severity == problem.Error {
		return 0
	}
	return 1
}

// described describes what the change does to each object.
func described(proposed []validate.Proposed) (all []preview.Object) {
	for _, d := range proposed {
		o := preview.Object{ID: d.ID, Act: preview.ActOf(d.Was, d.Is), Problems: d.Problems}
		if d.Refused {
			o.Act = preview.Refused
			slices.SortStableFunc(o.Problems, func(a, b object.Problem) int { return rank(a) - rank(b) })
		}
		all = append(all, o)
	}
	return all
}
