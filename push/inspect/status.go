package inspect

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/xds"
)

// statusTypes are the types for which `istioctl proxy-status` has columns.
var statusTypes = []xds.Type{xds.Listener, xds.Route, xds.Endpoint, xds.Cluster, xds.Extension}

// Status returns an encoded ClientConfig for each stream, sorted by proxy, in the form of istiod's response to
// istio.io/debug/syncz (istio: pilot/pkg/xds/statusgen.go). A proxy with two streams occurs twice. Without streams the
// result is nil. The node ID in a ClientConfig is Stream.Proxy, which istioctl prints. The node's metadata has the
// cluster, the agent's version and the namespace. `istioctl proxy-status --namespace` compares this namespace. Status
// fails if a ClientConfig or its metadata cannot be encoded. The error names the proxy.
func Status(c Config) ([]*discoveryv3.Resource, error) {
	var all []*discoveryv3.Resource
	for _, st := range sorted(c.Streams("")) {
		namespace := st.Proxy[strings.LastIndexByte(st.Proxy, '.')+1:]
		meta, err := structpb.NewStruct(map[string]any{"CLUSTER_ID": st.Cluster, "NAMESPACE": namespace, "ISTIO_VERSION": st.Version})
		if err != nil {
			return nil, fmt.Errorf("metadata of %s: %w", st.Proxy, err)
		}
		one := &statusv3.ClientConfig{Node: &corev3.Node{Id: st.Proxy, Metadata: meta}}
		for _, t := range statusTypes {
			one.GenericXdsConfigs = append(one.GenericXdsConfigs,
				&statusv3.ClientConfig_GenericXdsConfig{TypeUrl: t.URL(), ConfigStatus: st.Types[t].status()})
		}
		body, err := anypb.New(one)
		if err != nil {
			return nil, fmt.Errorf("status of %s: %w", st.Proxy, err)
		}
		all = append(all, &discoveryv3.Resource{Name: st.Proxy, Resource: body})
	}
	return all, nil
}

// status returns the state as a value of Envoy's status service.
func (s TypeStatus) status() statusv3.ConfigStatus {
	switch {
	case s.Subscribed && len(s.Refused)+len(s.Withheld) > 0:
		return statusv3.ConfigStatus_ERROR
	case s.Synced:
		return statusv3.ConfigStatus_SYNCED
	case !s.Subscribed || s.Sent == "":
		return statusv3.ConfigStatus_NOT_SENT
	}
	return statusv3.ConfigStatus_STALE
}

// Word returns the state as a word for operators. It is the first of these words that applies: REFUSED, WITHHELD,
// SYNCED, WARMING, NOT SENT (no subscription or no response yet), PENDING (not acknowledged yet).
func (s TypeStatus) Word() string {
	switch {
	case len(s.Refused) > 0:
		return "REFUSED"
	case len(s.Withheld) > 0:
		return "WITHHELD"
	case s.Synced:
		return "SYNCED"
	case s.Warming != nil:
		return "WARMING"
	case !s.Subscribed || s.Sent == "":
		return "NOT SENT"
	}
	return "PENDING"
}

// StatusCode returns the HTTP status that an error of this package states. It returns 500 for nil, and for an error
// that states no HTTP status.
func StatusCode(err error) int {
	var e httpError
	if errors.As(err, &e) {
		return e.status
	}
	return http.StatusInternalServerError
}
