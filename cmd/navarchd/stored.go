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

// Stored implements api.Objects. If this process does not lead, the result is zero. Revision is the revision of the
// newest batch, once three conditions hold: the ingester has read the requested generation or a newer one, it has
// sealed the object's private key, and it has written everything. Until then, Revision is 0. Errors are the context's.
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
	if s.Unsealed, err = i.loop.Unsealed(ctx, id); err != nil {
		return s, err
	}
	for range 2 { // Settled may be outdated after one Settle, but not after two
		if err := i.loop.Settle(ctx); err != nil {
			return s, err
		}
	}
	if !i.loop.Settled() {
		return s, nil
	}
	if !s.Unsealed {
		s.Revision = i.newest.Load()
	}
	all, err := i.loop.EveryProblem(ctx)
	for _, p := range all {
		if p.ID == id && p.Severity == problem.Error {
			text := p.Message
			if q.Whole {
				text = p.Full()
			}
			s.Problems = append(s.Problems, p.Field+": "+text)
		}
	}
	return s, err
}

// find returns an object of the config cluster as the ingester has read it. If the config cluster has no such object,
// find returns the object of the configuration folder. The result found is nil if the ingester has read neither object.
// Errors are the context's.
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
