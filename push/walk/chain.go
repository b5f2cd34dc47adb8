package walk

import (
	"fmt"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/xds"
)

// accept selects the filter chain of a listener for the connection, and applies its network filters.
func (w *walker) accept(l *listenerv3.Listener) {
	w.result.Outcome = Closed
	chain := w.chain(l)
	if chain == nil {
		w.result.Unmatched = true
		w.decide(xds.Listener, l.GetName(), "listener %s closes the connection: no filter chain", l.GetName())
		return
	}
	w.decide(xds.Listener, l.GetName(), "listener %s chain %s", l.GetName(), or(chain.GetName()))
	if !w.handshake(chain) {
		return
	}
	for _, f := range chain.GetFilters() {
		if w.filter(f.GetName(), f.GetTypedConfig()) {
			return
		}
	}
}

// filter applies a network filter, and reports whether the walk ends there.
func (w *walker) filter(name string, config *anypb.Any) bool {
	manager, tcp := &hcmv3.HttpConnectionManager{}, &tcpv3.TcpProxy{}
	switch {
	case config.MessageIs(manager):
		if err := config.UnmarshalTo(manager); err != nil {
			w.step("%v", err)
			return true
		}
		w.http(manager)
		return true
	case config.MessageIs(tcp):
		if err := config.UnmarshalTo(tcp); err != nil {
			w.step("%v", err)
			return true
		}
		w.tcp(tcp)
		return true
	}
	w.step("network filter %s", name)
	if w.isUnknown(name) {
		w.doubt(Possible, "network filter %s may end the connection", name)
	}
	return w.denied(config)
}

// tcp adds the clusters of a TCP proxy to Result.To.
func (w *walker) tcp(tcp *tcpv3.TcpProxy) {
	w.result.Outcome, w.result.TCP = Forwarded, true
	add := func(how, cluster string, weight uint32) {
		to := w.reach(how, cluster, weight)
		to.connection = true
		w.result.To = append(w.result.To, to)
	}
	if tcp.GetCluster() != "" {
		add("to", tcp.GetCluster(), 0)
	}
	for _, c := range tcp.GetWeightedClusters().GetClusters() {
		add(fmt.Sprint(c.GetWeight()), c.GetName(), c.GetWeight())
	}
	w.arrives()
}
