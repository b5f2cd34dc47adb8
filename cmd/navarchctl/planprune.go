package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/source/files"
)

// errAll is the error for a selector without requirements.
var errAll = errors.New("an empty selector would delete everything")

// pruneTo adds objects to c.removed. The argument present lists the objects before the change. pruneTo adds those
// objects of the list whose labels match the selector, except the objects in c.put. It recognises the objects in c.put
// even if their origins (cluster and source) differ. It fails if the selector is invalid, and with errAll if the
// selector has no requirements.
func (c *change) pruneTo(selector string, present []*object.Object) error {
	matches, err := labels.Parse(selector)
	if err != nil {
		return err
	}
	if matches.Empty() {
		return errAll
	}
	c.pruned = true
	put := map[object.ID]bool{}
	for _, o := range c.put {
		id := o.ID
		id.Origin = object.ID{}.Origin
		put[id] = true
	}
	for _, o := range present {
		id := o.ID
		id.Origin = object.ID{}.Origin
		if !put[id] && matches.Matches(labels.Set(o.Labels)) {
			c.removed = append(c.removed, o)
		}
	}
	return nil
}

// pruneLive calls pruneTo with the objects of Istio's kinds that the API server has. It also fails if no kubeconfig is
// found, or if the API server cannot list a kind.
func (p *planning) pruneLive(ctx context.Context, c *change) error {
	if !p.at.cluster.Given() {
		return errors.New("labels are read from the API server of a kubeconfig, and no kubeconfig is found (--kubeconfig)")
	}
	in, err := p.at.cluster.Open()
	if err != nil {
		return err
	}
	var there []*object.Object
	seen := map[kindName]bool{}
	for _, k := range kindNames {
		if seen[k] || !ofIstio(k.group) {
			continue
		}
		seen[k] = true
		some, err := k.all(ctx, in, p.prune)
		if err != nil {
			return err
		}
		there = append(there, some...)
	}
	slices.SortFunc(there, func(a, b *object.Object) int { return a.ID.Compare(b.ID) })
	return c.pruneTo(p.prune, there)
}

// all returns the objects of a kind whose labels match the selector, in all namespaces. It returns nil for a kind that
// the API server does not serve.
func (k kindName) all(ctx context.Context, in *cluster.Cluster, selector string) ([]*object.Object, error) {
	base, resource, err := k.resource(ctx, in, "")
	if apiserver.IsStatus(err, http.StatusNotFound) || err == nil && resource == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list struct {
		APIVersion string
		Items      []map[string]any
	}
	path := base + "/" + resource.Name + "?labelSelector=" + url.QueryEscape(selector)
	if err := in.API.Do(ctx, http.MethodGet, path, nil, &list); err != nil {
		return nil, fmt.Errorf("list %s: %w", k.kind, err)
	}
	for _, item := range list.Items { // the API server omits these two fields in the items of a list
		item["apiVersion"], item["kind"] = list.APIVersion, k.kind
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": list.Items})
	if err != nil {
		return nil, err
	}
	return objectsIn(k.kind+" of the API server", text)
}

// objectsIn parses objects. The argument origin names their source in errors. An error names the first object that is
// not valid.
func objectsIn(origin string, text []byte) (all []*object.Object, err error) {
	events, _ := files.Parse(origin, text)
	for _, e := range events {
		if e.Op == object.Broken {
			return nil, fmt.Errorf("%s: %s", e.Location, e.Problem)
		}
		all = append(all, e.Object)
	}
	return all, nil
}
