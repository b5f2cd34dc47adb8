package proxy

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/xds"
)

// facts are the properties of a resource that every holder needs. They are computed once for each version, by the first
// proxy that receives it.
type facts struct {
	eds      uint32      // of a cluster: 1 + the name index of its endpoints; 0: it uses no EDS
	clusters []uint32    // clusters that a listener or route names
	routes   []uint32    // route configurations that a listener subscribes to
	secrets  []uint32    // secrets from the same stream
	bad      string      // why the body cannot be decoded; empty: it can be
	sum      uint64      // hash of the body
	valid    atomic.Bool // a sampled proxy has validated the body
}

// decoder runs work that needs deep stacks (protobuf) on its own goroutines, so that the proxies' stacks stay small.
type decoder struct {
	work chan func()
	wg   sync.WaitGroup
}

func newDecoder(n int) *decoder {
	d := &decoder{work: make(chan func(), 64)}
	for range n {
		d.wg.Go(func() {
			for f := range d.work {
				f()
			}
		})
	}
	return d
}

// do runs f on one of these goroutines and waits for it.
func (d *decoder) do(f func()) {
	done := make(chan struct{})
	d.work <- func() { f(); close(done) }
	<-done
}

// close ends the goroutines; do must not be called afterwards.
func (d *decoder) close() {
	close(d.work)
	d.wg.Wait()
}

// message returns an empty message of a type.
func message(t xds.Type) proto.Message {
	switch t {
	case xds.Cluster:
		return &clusterv3.Cluster{}
	case xds.Endpoint:
		return &endpointv3.ClusterLoadAssignment{}
	case xds.Listener:
		return &listenerv3.Listener{}
	case xds.Route:
		return &routev3.RouteConfiguration{}
	default:
		return &tlsv3.Secret{}
	}
}

// read computes the facts of a body.
func (n *names) read(t xds.Type, name string, body []byte) *facts {
	f := &facts{sum: sum(body)}
	if t == xds.Endpoint || t == xds.Secret {
		return f // no facts; sampled proxies validate the body
	}
	w := walker{n: n, facts: f}
	if t == xds.Route {
		if err := w.routes(body); err != nil {
			f.bad = err.Error()
		}
		return f
	}
	m := message(t)
	if err := proto.Unmarshal(body, m); err != nil {
		f.bad = err.Error()
		return f
	}
	if c, ok := m.(*clusterv3.Cluster); ok {
		if e := c.GetEdsClusterConfig(); c.GetType() == clusterv3.Cluster_EDS && ads(e.GetEdsConfig()) {
			f.eds = 1 + n.name(xds.Endpoint, cmp.Or(e.GetServiceName(), name)).index
		}
	}
	w.message(m.ProtoReflect())
	return f
}

// ads reports whether a config source is the stream of the resource itself.
func ads(c *corev3.ConfigSource) bool { return c.GetAds() != nil || c.GetSelf() != nil }

// walker finds the names of other resources in a message and its nested messages.
type walker struct {
	n     *names
	facts *facts
	seen  [xds.NumTypes]map[string]bool
}

func (w *walker) name(t xds.Type, to *[]uint32, name string) {
	if name == "" || w.seen[t][name] {
		return
	}
	name = strings.Clone(name) // the name may be a part of the body
	if w.seen[t] == nil {
		w.seen[t] = map[string]bool{}
	}
	w.seen[t][name] = true
	*to = append(*to, w.n.name(t, name).index)
}

func (w *walker) cluster(name string) { w.name(xds.Cluster, &w.facts.clusters, name) }

// routes finds the clusters of an encoded RouteConfiguration without decoding the rest: a change of one virtual host
// makes a new version of 250 KB in every scope. Field numbers are those of envoy.config.route.v3.
func (w *walker) routes(body []byte) error {
	const (
		configHosts, configMirrors, hostRoutes, hostMirrors = 2, 18, 3, 22
		routeAction, actionCluster, actionWeighted          = 2, 1, 3
		actionMirrors, weightedClusters, clusterName        = 30, 1, 1
	)
	named := func(number protowire.Number, value []byte) error {
		if number == clusterName {
			w.cluster(borrow(value))
		}
		return nil
	}
	action := func(number protowire.Number, value []byte) error {
		switch number {
		case actionCluster:
			w.cluster(borrow(value))
		case actionMirrors:
			return each(value, named)
		case actionWeighted:
			return each(value, in(weightedClusters, named))
		}
		return nil
	}
	host := func(number protowire.Number, value []byte) error {
		switch number {
		case hostRoutes:
			return each(value, in(routeAction, action))
		case hostMirrors:
			return each(value, named)
		}
		return nil
	}
	return each(body, func(number protowire.Number, value []byte) error {
		switch number {
		case configHosts:
			return each(value, host)
		case configMirrors:
			return each(value, named)
		}
		return nil
	})
}

// in returns a visitor that applies visit to the fields of one field.
func in(number protowire.Number, visit func(protowire.Number, []byte) error) func(protowire.Number, []byte) error {
	return func(n protowire.Number, value []byte) error {
		if n == number {
			return each(value, visit)
		}
		return nil
	}
}

func (w *walker) message(m protoreflect.Message) {
	switch x := m.Interface().(type) {
	case *routev3.RouteAction: // route configurations inside of listeners
		w.cluster(x.GetCluster())
	case *routev3.WeightedCluster_ClusterWeight:
		w.cluster(x.GetName())
	case *routev3.RouteAction_RequestMirrorPolicy:
		w.cluster(x.GetCluster())
	case *tcpv3.TcpProxy:
		w.cluster(x.GetCluster())
	case *tcpv3.TcpProxy_WeightedCluster_ClusterWeight:
		w.cluster(x.GetName())
	case *hcmv3.Rds:
		if ads(x.GetConfigSource()) {
			w.name(xds.Route, &w.facts.routes, x.GetRouteConfigName())
		}
	case *tlsv3.SdsSecretConfig:
		if ads(x.GetSdsConfig()) {
			w.name(xds.Secret, &w.facts.secrets, x.GetName())
		}
	case *anypb.Any:
		if inner, err := x.UnmarshalNew(); err == nil { // an unknown type has no names to check
			w.message(inner.ProtoReflect())
		}
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Message() == nil {
			return true
		}
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { w.message(v.Message()); return true })
			}
		case fd.IsList():
			for i := range v.List().Len() {
				w.message(v.List().Get(i).Message())
			}
		default:
			w.message(v.Message())
		}
		return true
	})
}

// validate returns why a resource is not valid: it cannot be decoded, violates Envoy's rules, or has another name than
// its Resource. Empty: it is valid.
func validate(t xds.Type, name string, body []byte) string {
	m := message(t)
	if err := proto.Unmarshal(body, m); err != nil {
		return err.Error()
	}
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			return err.Error()
		}
	}
	own := name
	switch x := m.(type) {
	case *clusterv3.Cluster:
		own = x.GetName()
	case *endpointv3.ClusterLoadAssignment:
		own = x.GetClusterName()
	case *listenerv3.Listener:
		own = x.GetName()
	case *routev3.RouteConfiguration:
		own = x.GetName()
	case *tlsv3.Secret:
		own = x.GetName()
	}
	if own != name {
		return fmt.Sprintf("the message is named %q", own)
	}
	return ""
}

func contains(body []byte, marker string) bool {
	return strings.Contains(unsafe.String(unsafe.SliceData(body), len(body)), marker)
}
