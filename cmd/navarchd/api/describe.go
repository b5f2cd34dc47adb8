package api

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/describe"
)

// describeParameters are the parameters of /api/v1/describe.
var describeParameters = []string{"noun", "namespace", "name", "host", "from", "limit"}

// queryOf parses and checks the parameters of /api/v1/describe. Errors name the parameter.
func queryOf(q url.Values) (describe.Query, error) {
	of := describe.Query{Noun: q.Get("noun"), Namespace: q.Get("namespace"), Name: q.Get("name"), Host: q.Get("host"), From: q.Get("from")}
	if text := q.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil {
			return of, fmt.Errorf("limit=%.20q: want a number from 0 to %d", text, describe.MaxHosts)
		}
		of.Limit = limit
	}
	return of, of.Check()
}

// describePart describes the subject of the request from the plan of this process. The description is empty if the
// process serves no proxies.
func describePart(a *API, _ context.Context, who authz.Caller, q url.Values) (any, error) {
	of, err := queryOf(q)
	if err != nil || a.Describe == nil {
		return describe.Part{}, err
	}
	return a.Describe(of, sees(who))
}

// mergeDescribe merges the replicas' descriptions into one item. If no replica knows the subject, the answer has no
// item, or an item that only names similar objects.
func mergeDescribe(_ *API, _ url.Values, parts []fleetapi.From[describe.Part], _ int) (a fleetapi.Answer[describe.Part], err error) {
	var all []describe.Part
	for _, f := range parts {
		all = append(all, f.Part)
	}
	if merged := describe.Merge(all); !merged.Empty() || len(merged.More) > 0 {
		a.Items = append(a.Items, merged)
	}
	return a, nil
}
