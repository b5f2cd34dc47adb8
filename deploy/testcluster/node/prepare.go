package node

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	listers "k8s.io/client-go/listers/core/v1"

	"navarch.io/navarch/deploy/testcluster/netns"
)

// network is the network namespace of a Pod: its own, or the node's (hostNetwork).
type network struct {
	space     *netns.Space
	addresses []netip.Addr
	close     func()
}

func (n *Node) network(object *corev1.Pod) (*network, error) {
	if object.Spec.HostNetwork {
		return &network{n.Network.Space, []netip.Addr{n.Network.Address}, func() {}}, nil
	}
	p, err := n.Network.Pod()
	if err != nil {
		return nil, err
	}
	return &network{p.Space, p.Addresses, p.Close}, nil
}

// prepare creates network and volumes, with retries, and keeps the volumes up to date.
func (p *pod) prepare(ctx context.Context) {
	object := p.object.Load()
	var net *network
	err := os.MkdirAll(filepath.Join(p.dir, "volumes"), 0o755)
	if err == nil {
		net, err = p.node.network(object)
	}
	if err == nil {
		p.network.Store(net)
		err = p.writeFiles(object, net)
	}
	if err != nil {
		p.send(func() { p.machine.Unprepared(err.Error()) })
		p.node.Log.Error("Pod cannot be prepared", "pod", p.namespace+"/"+p.name, "err", err)
		return
	}
	addresses := make([]string, len(net.addresses))
	for i, a := range net.addresses {
		addresses[i] = a.String()
	}
	status := corev1.PodStatus{HostIP: p.node.Network.Address.String(), PodIP: addresses[0]}
	for _, a := range addresses {
		status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: a})
	}
	for prepared := false; ; {
		one, cancel := context.WithTimeout(ctx, patience)
		renew, err := p.volumes.Sync(one, p.object.Load(), status, time.Now())
		cancel()
		if err != nil {
			renew = time.Now().Add(time.Second)
		}
		switch {
		case err != nil && !prepared:
			p.send(func() { p.machine.Unprepared(err.Error()) })
		case !prepared:
			p.send(func() { p.machine.Prepared(status.HostIP, addresses) })
			prepared = true
		}
		select {
		case <-ctx.Done():
			return
		case <-p.refresh.Ready():
			p.refresh.Take()
		case <-after(renew, time.Now()):
		}
	}
}

// token requests a token that is bound to a Pod.
func (n *Node) token(ctx context.Context, object *corev1.Pod, audience string, seconds int64) (string, time.Time, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: object.Name, UID: object.UID}}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	answer, err := n.Client.CoreV1().ServiceAccounts(object.Namespace).CreateToken(ctx,
		object.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", time.Time{}, err
	}
	return answer.Status.Token, answer.Status.ExpirationTimestamp.Time, nil
}

// claim returns the folder of the volume that a claim is bound to.
func (n *Node) claim(namespace, name string) (string, error) {
	claim, err := listers.NewPersistentVolumeClaimLister(n.Objects.Claims.GetIndexer()).PersistentVolumeClaims(namespace).Get(name)
	if err != nil {
		return "", err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return "", fmt.Errorf("claim %q is not bound to a volume", name)
	}
	return filepath.Join(n.Volumes, claim.Spec.VolumeName), nil
}

// domain is the DNS domain of the cluster.
const domain = "cluster.local"

// writeFiles writes the files in /etc that every container of the Pod has.
func (p *pod) writeFiles(object *corev1.Pod, net *network) error {
	for name, text := range map[string]string{"hosts": hosts(object, net.addresses),
		"resolv.conf": resolvConf(object, p.node.DNS), "hostname": hostname(object) + "\n"} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func hostname(object *corev1.Pod) string {
	name := object.Spec.Hostname
	if name == "" {
		name = object.Name
	}
	return strings.TrimRight(name[:min(len(name), 63)], "-.")
}

func hosts(object *corev1.Pod, addresses []netip.Addr) string {
	var b strings.Builder
	b.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	for _, a := range addresses {
		name := hostname(object)
		if object.Spec.Subdomain != "" {
			name = fmt.Sprintf("%s.%s.%s.svc.%s\t%s", name, object.Spec.Subdomain, object.Namespace, domain, name)
		}
		fmt.Fprintf(&b, "%s\t%s\n", a, name)
	}
	for _, alias := range object.Spec.HostAliases {
		fmt.Fprintf(&b, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
	}
	return b.String()
}

// resolvConf returns resolv.conf for the cluster's DNS, as with dnsPolicy ClusterFirst, unless the policy is None;
// dnsConfig adds to it.
func resolvConf(object *corev1.Pod, dns string) string {
	servers, options := []string{dns}, []string{"ndots:5"}
	searches := []string{object.Namespace + ".svc." + domain, "svc." + domain, domain}
	if object.Spec.DNSPolicy == corev1.DNSNone {
		servers, options, searches = nil, nil, nil
	}
	if c := object.Spec.DNSConfig; c != nil {
		servers, searches = append(servers, c.Nameservers...), append(searches, c.Searches...)
		for _, o := range c.Options {
			options = slices.DeleteFunc(options, func(old string) bool { name, _, _ := strings.Cut(old, ":"); return name == o.Name })
			if o.Value != nil {
				o.Name += ":" + *o.Value
			}
			options = append(options, o.Name)
		}
	}
	var b strings.Builder
	for _, s := range servers {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	if len(searches) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(searches, " "))
	}
	if len(options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(options, " "))
	}
	return b.String()
}
