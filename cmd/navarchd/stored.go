package main

import (
	"context"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchd/api"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

var _ api.Objects = (*ingester)(nil)

// Stored implements api.Objects. The revision is that of the newest batch once the ingester has processed the object's
// generation, and nothing waits to be written. Errors are the context's.
func (i *ingester) Stored(ctx context.Context, q api.StoredQuestion) (s fleetapi.Stored, err error) {
	if _, s.Leads = i.lead.Epoch(); !s.Leads {
		return s, nil
	}
	id, found, err := i.find(ctx, q)
	if err != nil {
		return s, err
	}
	if found == nil {
		return s, nil
	}
	if s.Read, s.Generation = true, found.Generation; found.Generation < q.Generation {
		return s, nil
	}
	for range 2 { // the ingester reports Settled between two of its inputs, so the second pass covers the object
		if err := i.loop.Settle(ctx); err != nil {
			return s, err
		}
	}
	if !i.loop.Settled() {
		return s, nil
	}
	s.Revision = i.newest.Load()
	all, err := i.loop.EveryProblem(ctx)
	for _, p := range all {
		if p.ID == id && p.Severity == problem.Error {
			s.Problems = append(s.Problems, p.Field+": "+p.Message)
		}
	}
	return s, err
}

// find returns an object of the config cluster or of the folder as the ingester knows it; nil: it has read none. Errors
// are the context's.
func (i *ingester) find(ctx context.Context, q api.StoredQuestion) (id object.ID, found *object.Object, err error) {
	var ids []object.ID
	for _, source := range []string{origin.Kube, origin.Files} {
		ids = append(ids, object.ID{Origin: origin.New("", source), Group: q.Group, Kind: q.Kind, Namespace: q.Namespace, Name: q.Name})
	}
	all, err := i.loop.Objects(ctx, ids)
	for _, id := range ids {
		if found = all[id]; found != nil {
			return id, found, err
		}
	}
	return id, nil, err
}
