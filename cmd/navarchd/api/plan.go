package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/preview"
)

// aloneParameter is the parameter that makes a process answer without the other replicas ("true").
const aloneParameter = "alone"

// bootstrapsParameter is the parameter that adds Envoy's configuration of up to eight groups of proxies to a preview
// ("true").
const bootstrapsParameter = "bootstraps"

// scopeParameter limits a preview to some proxies. proxiesParameter makes a preview name all affected proxies ("true").
const (
	scopeParameter   = "scope"
	proxiesParameter = "proxies"
)

// usualBody is the size in bytes of the largest body of a request, except at endpoints with a larger bound.
const usualBody = 64 << 10

// MaxBody returns the size in bytes of the largest body that a request to a path may have. It is 64 KiB, or more at
// endpoints that accept larger bodies.
func MaxBody(path string) int64 {
	if name, is := strings.CutPrefix(path, fleetapi.Root); is {
		if e := endpointOf(name); e != nil {
			return max(e.body, usualBody)
		}
	}
	return usualBody
}

// body reads the body of a POST request; nil for other endpoints. The result sent is a function, never nil, which must
// be called once the response is written. Errors are statusErrors.
func (a *API) body(ctx context.Context, e *endpoint, who authz.Caller, w http.ResponseWriter, r *http.Request,
) (body []byte, sent func(), err error) {
	if e.posted == nil {
		return nil, func() {}, nil
	}
	body, sent, status, err := a.Pages.PlanBody(ctx, who, w, r)
	if err != nil {
		err = statusError{status, err.Error()}
	}
	return body, sent, err
}

// planPart previews a change for the proxies of this process.
func planPart(a *API, ctx context.Context, who authz.Caller, q url.Values, body []byte) (any, error) {
	for _, name := range []string{"delete", bootstrapsParameter, proxiesParameter} {
		if text := q.Get(name); text != "" && text != "true" && text != "false" {
			return nil, fmt.Errorf("%s=%.20q: want true or false", name, text)
		}
	}
	report, status, err := a.Pages.Plan(ctx, who, body, q)
	if err != nil {
		return nil, statusError{status, err.Error()}
	}
	return report, nil
}

// mergePlans merges the reports of all replicas, in the order of their names, so that all replicas give equal answers.
// If a replica refuses an object, the answer is the first such report alone.
func mergePlans(_ *API, _ url.Values, parts []fleetapi.From[*preview.Report], _ int) (answer fleetapi.Answer[*preview.Report], err error) {
	slices.SortFunc(parts, func(a, b fleetapi.From[*preview.Report]) int {
		return strings.Compare(a.Replica, b.Replica)
	})
	var all []*preview.Report
	for _, f := range parts {
		all = append(all, f.Part)
	}
	if i := slices.IndexFunc(all, (*preview.Report).Refused); i >= 0 {
		all = all[i : i+1]
	}
	if len(all) > 0 {
		answer.Items = append(answer.Items, preview.Merge(all))
	}
	return answer, nil
}
