package scene

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/loadtest/attack"
	"navarch.io/navarch/loadtest/mesh"
	"navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
)

// neighbours is the source address of a good client that shares no address with the attackers.
const neighbours = "127.0.0.67"

// The figures of each attack.
const (
	ofGrowth  = "RSS grown"
	ofCPU     = "CPU beyond the same load on a sink"
	ofAnother = "a good client from another address, slowest"
	ofSame    = "a good client from the same address, slowest"
)

func rowOfAttack(name, figure string) string { return name + ": " + figure }

// preauthTargets returns the targets of every attack without a credential.
func preauthTargets() map[string]Target {
	all := map[string]Target{}
	for _, a := range attack.All() {
		if a.Credential {
			continue
		}
		limits := map[string]float64{ofGrowth: 64, ofCPU: .2, ofAnother: 1000, ofSame: 5000}
		if slices.Contains(attack.ReviewAttacks, a.Name) { // the attackers pay for the reading of these reviews
			limits = map[string]float64{ofGrowth: 256, ofAnother: 1000, ofSame: 5000}
		}
		for figure, most := range limits {
			all[rowOfAttack(a.Name, figure)] = Target{Value: most}
		}
	}
	return all
}

// overTLS makes proxies use mTLS in any world.
func overTLS(s *mesh.Settings) { s.MTLS = true }

// preauth carries out each attack without a credential, first against a sink and then against the server.
func preauth(s *stage) error {
	var client *goodClient
	prepare := func() (err error) {
		client, err = s.goodClient()
		return err
	}
	return s.attacked(prepare, func(c *cage) error { return s.playPreauth(c, client) })
}

func (s *stage) playPreauth(c *cage, client *goodClient) error {
	for _, a := range attack.All() {
		if a.Credential || len(s.Attacks) > 0 && !slices.Contains(s.Attacks, a.Name) {
			continue
		}
		s.enter(a.Name + ", aimed at a sink")
		sink, err := s.siege(c, a.Name, client, "--sink")
		if err != nil {
			return err
		}
		s.enter(a.Name + ", aimed at the server")
		under, err := s.siege(c, a.Name, client, "--addr", s.servers[0].Addr, "--webhooks", s.starter.webhooks)
		if err != nil {
			return err
		}
		s.compareSieges(a.Name, sink, under)
	}
	return s.equal()
}

// siege contains the results of one attack.
type siege struct {
	before, peak  uint64  // resident memory of the servers, in bytes
	cores         float64 // CPU usage of the servers, in cores
	another, same time.Duration
	counts        map[string]attack.Count
}

// siege runs the attackers for the duration of an attack, while a good client connects repeatedly from two addresses.
func (s *stage) siege(c *cage, name string, client *goodClient, at ...string) (*siege, error) {
	args := append(slices.Clone(s.AttackArgs), "--from", attackers, "--only", name, "--even",
		"--connections", strconv.Itoa(max(attack.MinConnections, int(attack.MaxConnections*min(1, s.Scale)))))
	one := &siege{}
	_, one.before = usage(s.watched())
	cpu0, began := spent(s.watched()), time.Now()
	attacking, err := startAttack(c, append(args, at...))
	if err != nil {
		return nil, err
	}
	defer attacking.kill()
	ctx, stop := context.WithTimeout(s.ctx, s.lasts())
	defer stop()
	s.measures(func() float64 { return min(1, float64(time.Since(began))/float64(s.lasts())) })
	var all sync.WaitGroup
	all.Go(func() { one.peak = s.peak(ctx) })
	all.Go(func() { one.another = client.slowest(ctx, neighbours) })
	all.Go(func() { one.same = client.slowest(ctx, attackers) })
	all.Wait()
	one.cores = (spent(s.watched()) - cpu0).Seconds() / time.Since(began).Seconds()
	one.counts, _, err = attacking.end()
	return one, errors.Join(err, s.ctx.Err(), s.servers[0].alive())
}

// compareSieges adds the figures of one attack.
func (s *stage) compareSieges(name string, sink, under *siege) {
	s.cost(rowOfAttack(name, ofGrowth), "MB", mb(max(under.peak, under.before))-mb(under.before))
	s.cost(rowOfAttack(name, ofCPU), "cores", max(0, under.cores-sink.cores))
	s.row(rowOfAttack(name, ofAnother), "ms", ms(under.another))
	s.row(rowOfAttack(name, ofSame), "ms", ms(under.same))
	s.row(rowOfAttack(name, "the same two, aimed at a sink, slower one"), "ms", ms(max(sink.another, sink.same)))
	s.note("Attack %s: %s.", name, under.counts[name])
}

// goodClient is a proxy of the mesh with a certificate.
type goodClient struct {
	addr string
	conf *tls.Config
	node *corev3.Node
}

// goodClient returns a client with the identity of the first workload.
func (s *stage) goodClient() (*goodClient, error) {
	certs, err := newCertifier(*s.TLS.Authority)
	if err != nil {
		return nil, err
	}
	id := s.identities(0, 1)[0]
	conf, err := certs.client(id)
	if err != nil {
		return nil, err
	}
	conf.NextProtos = []string{"h2"}
	return &goodClient{addr: s.servers[0].Addr, conf: conf, node: nodeOf(id)}, nil
}

// nodeOf returns a node with the fields that identify its proxy.
func nodeOf(id proxy.Identity) *corev3.Node {
	fields := map[string]*structpb.Value{}
	for key, value := range map[string]string{"NAME": id.Name,
		"NAMESPACE": id.Namespace, "SERVICE_ACCOUNT": id.ServiceAccount, "CLUSTER_ID": id.Cluster,
		"INSTANCE_IPS": id.IP, "NAVARCH_IDENTITY": "sds"} {
		if value != "" {
			fields[key] = structpb.NewStringValue(value)
		}
	}
	return &corev3.Node{Id: fmt.Sprintf("sidecar~%s~%s.%s~%s.svc.cluster.local", id.IP, id.Name, id.Namespace, id.Namespace),
		Metadata: &structpb.Struct{Fields: fields}}
}

// connectLimit is the longest connection attempt; a failed attempt counts with this duration.
const connectLimit = 30 * time.Second

// slowest connects from an address once a second until ctx ends. It returns the longest time to the first response of a
// stream, retries included. An attempt that is under way when ctx ends is completed.
func (g *goodClient) slowest(ctx context.Context, from string) (slowest time.Duration) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		over, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectLimit)
		for g.connect(over, from) != nil && over.Err() == nil {
			pause := time.NewTimer(50 * time.Millisecond)
			select {
			case <-pause.C:
			case <-over.Done():
			}
			pause.Stop()
		}
		cancel()
		slowest = max(slowest, time.Since(began))
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return slowest
}

// connect opens a connection and a stream, and closes both at the first response.
func (g *goodClient) connect(ctx context.Context, from string) error {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := grpc.NewClient("passthrough:///"+g.addr, grpc.WithTransportCredentials(credentials.NewTLS(g.conf)), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", addr) }))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: g.node, TypeUrl: xds.Cluster.URL()}); err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}
