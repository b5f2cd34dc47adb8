package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/xds"
)

// proxiesPart returns the sums of this replica's selected proxies, and the items in the requested window of their list.
func proxiesPart(a *API, _ context.Context, who authz.Caller, q url.Values) (any, error) {
	selection, err := fleetapi.ParseSelection(q)
	if err != nil {
		return nil, err
	}
	if a.Proxies == nil || selection.Replica != "" && selection.Replica != a.Self {
		return fleetapi.Proxies{}, nil
	}
	var all []fleetapi.Proxy
	var back []uint64
	since := a.Now().Add(-debug.LeftFor)
	for _, s := range a.Proxies.Streams(who.Sees, selection.Name) {
		if p := proxyOf(&s, a.Self); selection.Selects(&p, s.Labels) {
			all = append(all, p)
		}
		if s.Connected.After(since) {
			back = append(back, fleetapi.Hash(s.Node))
		}
	}
	part := selection.PartOf(all)
	part.Back, part.Left = back, a.left(who, &selection)
	return part, nil
}

// synczPart returns the states of this replica's proxies of a name or namespace, in the requested window of their list.
func synczPart(a *API, _ context.Context, who authz.Caller, q url.Values) (any, error) {
	w, err := fleetapi.ParseWindow(q)
	if err != nil {
		return nil, err
	}
	if a.Proxies == nil {
		return nil, statusError{http.StatusNotFound, fleetapi.ServesNone + ": ask one with role xds"}
	}
	var all []inspect.Sync
	for _, s := range a.Proxies.Streams(who.Sees, q.Get("name")) {
		if namespace := q.Get("namespace"); namespace == "" || namespace == s.Namespace {
			all = append(all, inspect.SyncOf(s, a.Self))
		}
	}
	return fleetapi.PartOfSyncs(w, all)
}

func mergeSyncz(_ *API, q url.Values, parts []fleetapi.From[fleetapi.Syncs], _ int) (a fleetapi.Answer[json.RawMessage], err error) {
	w, err := fleetapi.ParseWindow(q)
	if err != nil {
		return a, err
	}
	return fleetapi.MergeSyncs(w, parts)
}

// left returns the selected proxies whose streams to this replica ended in the last 10 minutes. If the request selects
// by labels or replica, the result is empty. The labels of ended streams are unknown.
func (a *API) left(who authz.Caller, selection *fleetapi.Selection) (all []fleetapi.Proxy) {
	for _, l := range a.Proxies.Departed(sees(who)) {
		p := fleetapi.Proxy{Proxy: l.Proxy, Node: l.Node, Namespace: l.Namespace, Replica: a.Self, Version: l.Version, Zone: l.Zone,
			Cluster: cmp.Or(l.Cluster, a.Proxies.ConfigCluster()), State: fleetapi.Gone, Since: l.At}
		if selection.Labels == nil && selection.Replica == "" && selection.Selects(&p, nil) {
			all = append(all, p)
		}
	}
	return all
}

// proxyOf returns the item of the answer for one stream.
func proxyOf(s *inspect.Stream, replica string) fleetapi.Proxy {
	p := fleetapi.Proxy{Proxy: s.Proxy, Node: s.Node, Namespace: s.Namespace, Replica: replica, State: fleetapi.InSync,
		Version: s.Version, Zone: s.Zone, Cluster: s.Cluster, Revision: s.Revision, Connected: s.Connected, Since: s.Behind,
		Types: map[string]string{}}
	for t := range xds.NumTypes {
		ts := &s.Types[t]
		if !ts.Subscribed {
			continue
		}
		p.Types[t.Noun()] = ts.Word()
		p.Refused, p.Withheld = p.Refused+len(ts.Refused), p.Withheld+len(ts.Withheld)
		if !ts.Synced {
			p.State = fleetapi.Behind
		}
	}
	if p.Refused+p.Withheld > 0 {
		p.State = fleetapi.Refusing
	}
	return p
}

// mergeProxies merges the parts of all replicas.
func mergeProxies(_ *API, q url.Values, parts []fleetapi.From[fleetapi.Proxies], _ int) (a fleetapi.Answer[fleetapi.Proxy], err error) {
	selection, err := fleetapi.ParseSelection(q)
	if err != nil {
		return a, err
	}
	return selection.MergeProxies(parts), nil
}
