package node

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"navarch.io/navarch/deploy/testcluster/podenv"
)

// Port is the port at which nodes answer the API server.
const Port = 10250

// register creates the Node, or adopts the existing one.
func (n *Node) register(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name,
		Labels: map[string]string{corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux",
			corev1.LabelArchStable: "amd64", corev1.LabelTopologyRegion: "region1", corev1.LabelTopologyZone: n.Zone}}}
	for _, cidr := range n.Network.CIDRs {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, cidr.String())
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	_, err := n.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	// Controllers update the same Node, so conflicts are retried.
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return n.writeStatus(ctx) }); err != nil {
		return err
	}
	return n.renew(ctx)
}

func (n *Node) writeStatus(ctx context.Context) error {
	node, err := n.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	now := metav1.Now()
	since := now
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			since = c.LastTransitionTime
		}
	}
	node.Status.Capacity, node.Status.Allocatable = podenv.Capacity, podenv.Capacity
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.Network.Address.String()},
		{Type: corev1.NodeHostName, Address: n.Name}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = Port
	node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64", ContainerRuntimeVersion: "processes://1",
		OSImage: "cluster of processes"}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: since}}
	_, err = n.Client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// heartbeat renews the lease every ten seconds, and the status every five minutes, as the kubelet does.
func (n *Node) heartbeat(ctx context.Context) error {
	for beats := 1; ; beats++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(10 * time.Second):
		}
		one, cancel := context.WithTimeout(ctx, patience)
		err := n.renew(one)
		if err == nil && beats%30 == 0 {
			err = n.writeStatus(one)
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			n.Log.Warn("heartbeat failed", "err", err)
		}
	}
}

func (n *Node) renew(ctx context.Context) error {
	leases := n.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	seconds, now := int32(40), metav1.NowMicro()
	lease, err := leases.Get(ctx, n.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n.Name},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.Name, LeaseDurationSeconds: &seconds, RenewTime: &now}}, metav1.CreateOptions{})
	case err == nil:
		lease.Spec.RenewTime = &now
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	return err
}
