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

// statusTypes are those that `istioctl proxy-status` has columns for.
var statusTypes = []xds.Type{xds.Listener, xds.Route, xds.Endpoint, xds.Cluster, xds.Extension}

// Status is a ClientConfig for every proxy, as istiod answers istio.io/debug/syncz (istio pilot/pkg/xds/statusgen.go): the
// node's id is name.namespace, which istioctl prints, and its metadata have the cluster, the version and the namespace, by
// which `istioctl proxy-status --namespace` selects. Errors are those of encoding, and name the proxy.
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

// StatusCode is the HTTP status of an error of a page.
func StatusCode(err error) int {
	var e httpError
	if errors.As(err, &e) {
		return e.status
	}
	return http.StatusInternalServerError
}
