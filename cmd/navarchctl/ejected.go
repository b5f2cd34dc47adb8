package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/dump"
	"navarch.io/navarch/push/walk"
)

// ejectedWithin is the time limit of the request to the Envoy in a Pod. Without a response it is unknown which
// endpoints are ejected.
const ejectedWithin = 3 * time.Second

// observed returns the proxy with this name and its configuration, with the state of its endpoints.
func (q *question) observed(cmd *cobra.Command, name string) (*subject, error) {
	s, err := q.proxy(cmd, name)
	if err != nil {
		return nil, err
	}
	return s, q.observe(cmd, s)
}

// observe adds the state of the endpoints to a proxy's configuration. It reads the state from the file of --clusters,
// from the Envoy of --envoy, or from the Envoy in the proxy's Pod, if a kubeconfig leads to it. In all other cases the
// state stays unknown. Only a file that cannot be read is an error.
func (q *question) observe(cmd *cobra.Command, s *subject) error {
	d, ctx, file := s.dump, cmd.Context(), q.clusters
	switch {
	case file != "" && d == nil:
		return errors.New("--clusters: --config-dir plans the configuration of a proxy that has no endpoints yet")
	case file != "":
		raw, err := contentOf(file, cmd.InOrStdin())
		if err == nil {
			err = d.ReadClusters(raw)
		}
		if err != nil {
			return fmt.Errorf("--clusters %s: %w", file, err)
		}
	case d == nil:
		return nil
	case d.Hosts == nil && s.asked != "" && openedOf(ctx) == nil && q.inCluster():
		q.askPod(ctx, d, s.asked)
	}
	if d.Hosts != nil {
		s.held.Asked()
	}
	for _, h := range d.Hosts {
		if why := ejection(h.GetHealthStatus()); why != "" {
			s.held.Eject(h.Cluster, walk.HostPort(h.GetAddress()), why)
		}
	}
	return nil
}

// askPod reads the state of the endpoints from the Envoy in a proxy's Pod, through the API server. Without a valid
// response it leaves the dump unchanged.
func (q *question) askPod(ctx context.Context, d *dump.Dump, proxy string) {
	name, namespace, is := splitProxy(proxy)
	if !is {
		return
	}
	in, err := q.cluster.Open()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ejectedWithin)
	defer cancel()
	if raw, err := envoyPage(ctx, in, namespace, name, clustersPage); err == nil {
		_ = d.ReadClusters(raw) // an answer of another form is no answer
	}
}

// ejection returns the reasons why Envoy sends nothing to an endpoint, or an empty text. The health status in the
// endpoint's assignment (eds_health_status) is not considered.
func ejection(s *adminv3.HostHealthStatus) string {
	var all []string
	if s.GetFailedOutlierCheck() {
		all = append(all, "outlier detection")
	}
	if s.GetFailedActiveHealthCheck() {
		all = append(all, "failed health check")
	}
	return strings.Join(all, ", ")
}
