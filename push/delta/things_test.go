package delta

import (
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

var (
	things   = map[string]*xds.Resource{}
	versions = map[string]string{} // hash -> what the scripts call it
)

// thing is the resource that scripts call name@version(mentions); one pointer for one label, like a pool.
func thing(t xds.Type, label string) *xds.Resource {
	key := t.String() + label
	if r := things[key]; r != nil {
		return r
	}
	name, version, _ := strings.Cut(label, "@")
	version, standIn, _ := strings.Cut(version, "/")
	if version == "?" {
		things[key] = manifest.Pending(t, name)
		return things[key]
	}
	var needs []xds.Ref
	if t == xds.Cluster && !strings.HasPrefix(name, "static") {
		needs = append(needs, xds.Ref{Type: xds.Endpoint, Name: name})
	}
	if t == xds.Listener && strings.HasPrefix(name, "l-") {
		needs = append(needs, xds.Ref{Type: xds.Route, Name: "r-" + name[2:]})
	}
	message := &clusterv3.Cluster{Name: name, AltStatName: version}
	var secrets []string
	if _, list, ok := strings.Cut(version, "("); ok { // names are fields of their own
		for named := range strings.SplitSeq(strings.TrimSuffix(list, ")"), ",") {
			secrets = append(secrets, named)
			message.Filters = append(message.Filters, &clusterv3.Filter{Name: named})
		}
	}
	if t == xds.Listener && strings.HasPrefix(version, "guard") {
		message.Filters = append(message.Filters, &clusterv3.Filter{TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"}})
	}
	r, err := xds.Encode(t, name, message, needs...)
	if err != nil {
		panic(err)
	}
	if t == xds.Cluster {
		r.Secrets = secrets
	}
	r.WarmsUnseen = t == xds.Cluster && strings.HasPrefix(version, "cold")
	if standIn != "" {
		stand, err := xds.Encode(t, name, &clusterv3.Cluster{Name: name, AltStatName: standIn})
		if err != nil {
			panic(err)
		}
		r.With(stand)
		versions[stand.Version] = standIn
	}
	things[key], versions[r.Version] = r, version
	return r
}

func label(r *xds.Resource) string {
	v, ok := versions[r.Version]
	if !ok {
		v = "empty"
	}
	return r.Name + "@" + v
}

// evolve makes a stack that holds exactly the list, out of its predecessor.
func evolve(old manifest.Stack, list []*xds.Resource) manifest.Stack {
	var gone []string
	for r := range old[manifest.Scope].All() {
		if !slices.ContainsFunc(list, func(n *xds.Resource) bool { return n.Name == r.Name }) {
			gone = append(gone, r.Name)
		}
	}
	old[manifest.Scope] = old[manifest.Scope].With(list, gone)
	return old
}
