package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"navarch.io/navarch/deploy/testcluster/balancer"
)

// startBalancer gives Services of type LoadBalancer their addresses. Each node serves them by the rules of its
// kube-proxy. The outer namespace reaches them by the first node.
func (s *supervisor) startBalancer(ctx context.Context, services cache.SharedIndexInformer, failed chan<- error) error {
	ranges := s.balancers()
	for _, r := range ranges {
		if err := s.network.Lead(r, s.entrance); err != nil {
			return err
		}
	}
	write := func(ctx context.Context, service *corev1.Service) error {
		_, err := s.client.CoreV1().Services(service.Namespace).UpdateStatus(ctx, service, metav1.UpdateOptions{})
		return err
	}
	b := &balancer.Balancer{Services: services, WriteStatus: write, Ranges: ranges, Log: s.log.With("controller", "load balancers")}
	go func() {
		if err := b.Run(ctx); err != nil {
			failed <- fmt.Errorf("load balancers: %w", err)
		}
	}()
	return nil
}
