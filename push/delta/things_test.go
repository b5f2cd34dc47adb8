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
	hosts    = map[string]*xds.Fragment{}
	versions = map[string]string{} // hash -> the version's name in the scripts
)

// thing returns the resource that scripts call name@version(mentions): one pointer for each label, as from a pool.
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
	if _, list, ok := strings.Cut(version, "("); ok { // names are separate fields
		for named := range strings.SplitSeq(strings.TrimSuffix(list, ")"), ",") {
			secrets = append(secrets, named)
			message.Filters = append(message.Filters, &clusterv3.Filter{Name: named})
		}
	}
	if t == xds.Listener && strings.HasPrefix(version, "guard") {
		message.Filters = append(message.Filters, &clusterv3.Filter{TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"}})
	}
	r, err := xds.EncodeRope(t, name, message, virtualHosts(version), needs...)
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

// virtualHosts returns the virtual hosts of version{host:cluster,host:cluster}, one pointer for each content.
func virtualHosts(version string) (all []*xds.Fragment) {
	_, list, is := strings.Cut(strings.TrimSuffix(version, "}"), "{")
	for one := range strings.SplitSeq(list, ",") {
		if !is {
			return nil
		}
		if hosts[one] == nil {
			host, cluster, _ := strings.Cut(one, ":")
			var err error
			if hosts[one], err = xds.EncodeFragment(host, 2, &clusterv3.Cluster{Name: cluster}); err != nil {
				panic(err)
			}
		}
		all = append(all, hosts[one])
	}
	return all
}

func label(r *xds.Resource) string {
	v, ok := versions[r.Version]
	if !ok {
		v = "empty"
	}
	return r.Name + "@" + v
}

// evolve returns a stack with exactly the resources of the list, derived from its predecessor.
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
