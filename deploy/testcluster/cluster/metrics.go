package cluster

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/deploy/testcluster/metrics"
	"navarch.io/navarch/deploy/testcluster/netns"
	"navarch.io/navarch/deploy/testcluster/node"
)

// metricsPort is the port of the metrics APIs in the outer namespace.
const metricsPort = 8443

// startMetrics serves the metrics APIs, and registers them as aggregated APIs.
func (s *supervisor) startMetrics(ctx context.Context, nodes []*node.Node, failed chan<- error) error {
	collector := metrics.NewCollector(func() (all []metrics.Running) {
		for _, n := range nodes {
			all = append(all, n.Running()...)
		}
		return all
	})
	go func() { _ = collector.Run(ctx) }() // until the context ends
	config, err := s.pki.serverOf(frontProxy, "metrics."+metav1.NamespaceSystem+".svc")
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", netns.Outer, metricsPort))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: collector.Handler(), ReadHeaderTimeout: patience}
	go func() { failed <- fmt.Errorf("metrics APIs: %w", server.Serve(tls.NewListener(listener, config))) }()
	if err := s.outerService(ctx, metav1.NamespaceSystem, "metrics", "",
		corev1.ServicePort{Name: "https", Protocol: corev1.ProtocolTCP, Port: metricsPort}); err != nil {
		return err
	}
	for group, version := range metrics.Groups {
		object := map[string]any{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
			"metadata": map[string]any{"name": version + "." + group},
			"spec": map[string]any{"group": group, "version": version, "groupPriorityMinimum": 100,
				"versionPriority": 100, "caBundle": s.pki.authority,
				"service": map[string]any{"namespace": metav1.NamespaceSystem, "name": "metrics", "port": metricsPort}}}
		text, err := json.Marshal(object)
		if err != nil {
			return err
		}
		if err := s.client.Discovery().RESTClient().Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").SetHeader("Content-Type",
			"application/json").Body(text).Do(ctx).Error(); err != nil {
			return fmt.Errorf("register %s: %w", group, err)
		}
	}
	return nil
}
