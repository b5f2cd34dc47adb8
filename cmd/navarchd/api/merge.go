package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchd/api/ask"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/inspect"
)

// merger merges the parts of several replicas. partial lists the replicas without a part.
type merger func(a *API, q url.Values, parts []replied, partial []fleetapi.Missing) (any, error)

// replied is the part of one replica as JSON. revision is the store's revision up to which the replica has notified its
// proxies; 0: unknown.
type replied struct {
	replica  string
	revision int64
	raw      json.RawMessage
}

// merging makes a merger from a function that merges decoded parts of type P. If a part does not decode, its replica is
// added to partial. The answer has the lowest revision of the parts, or 0 if no part has a revision.
func merging[P, T any](merge func(*API, url.Values, []fleetapi.From[P], int) (fleetapi.Answer[T], error)) merger {
	return func(a *API, q url.Values, raw []replied, partial []fleetapi.Missing) (any, error) {
		var parts []fleetapi.From[P]
		revision := int64(0)
		for _, r := range raw {
			from := fleetapi.From[P]{Replica: r.replica}
			if err := json.Unmarshal(r.raw, &from.Part); err != nil {
				partial = append(partial, fleetapi.Missing{Replica: r.replica, Reason: "its answer cannot be read: " + err.Error()})
				continue
			}
			if parts = append(parts, from); r.revision > 0 && (revision == 0 || r.revision < revision) {
				revision = r.revision
			}
		}
		answer, err := merge(a, q, parts, len(partial))
		if err != nil {
			return nil, err
		}
		answer.Schema, answer.Revision, answer.Partial = fleetapi.Schema, revision, append([]fleetapi.Missing{}, partial...)
		if answer.Items == nil {
			answer.Items = []T{}
		}
		if q.Get(aloneParameter) == "true" {
			answer.Replica = a.Self
		}
		return answer, nil
	}
}

// merged merges the replies of all replicas into one answer.
func (a *API) merged(e *endpoint, who authz.Caller, q url.Values, heard []ask.Heard) (any, error) {
	parts, partial, absent := sortOut(heard)
	if len(parts) == 0 && absent != "" {
		for _, m := range partial {
			absent += fmt.Sprintf("; replica %s did not answer: %s", m.Replica, m.Reason)
		}
		return nil, statusError{http.StatusNotFound, absent}
	}
	if e.fleet && a.Proxies == nil && len(partial) > 0 && len(parts) == 1 {
		return nil, statusError{http.StatusBadGateway, "this process serves no proxies, and no replica answers it; replica " +
			partial[0].Replica + ": " + partial[0].Reason}
	}
	if e.fleet && who.Sees == nil {
		a.lastOf(partial, a.Now())
	}
	if e.leads && q.Get(aloneParameter) != "true" {
		partial = a.withLeader(heard, partial)
	}
	return e.merge(a, q, parts, partial)
}

// withLeader adds the leader to the processes without a part if it is not in heard. Only processes with role xds can be
// asked.
func (a *API) withLeader(heard []ask.Heard, partial []fleetapi.Missing) []fleetapi.Missing {
	if a.Leader == nil {
		return partial
	}
	leader := a.Leader()
	if leader == "" || slices.ContainsFunc(heard, func(h ask.Heard) bool { return h.Replica == leader }) {
		return partial
	}
	return append(partial, fleetapi.Missing{Replica: leader, Unable: true,
		Reason: "it leads, and serves no proxies: it lists the problems of objects if it is asked itself"})
}

// sortOut separates replicas with and without a part. absent is the error of a replica that does not know the requested
// proxy, or of the proxy's replica, which does not know the resource; empty if there is no such replica.
func sortOut(heard []ask.Heard) (parts []replied, partial []fleetapi.Missing, absent string) {
	for _, h := range heard {
		switch {
		case h.Err != nil:
			partial = append(partial, fleetapi.Missing{Replica: h.Replica, Reason: h.Err.Error(), Unable: errors.Is(h.Err, ask.ErrUnable)})
		case h.Reply.OK():
			parts = append(parts, replied{h.Replica, h.Reply.Revision, h.Reply.Part})
		case h.Reply.Status == http.StatusNotFound:
			if absent == "" || strings.Contains(absent, inspect.NotConnected) {
				absent = h.Reply.Text
			}
		default:
			partial = append(partial, fleetapi.Missing{Replica: h.Replica, Reason: h.Reply.Text})
		}
	}
	return parts, partial, absent
}
