package e2e

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// etcdCluster is an etcd of several members for one test, each reached through a Unix socket of its own.
type etcdCluster struct {
	t       testing.TB
	members []*embed.Etcd
	cut     map[int]bool
}

// startEtcdCluster runs a member for each address (host:port), at which the members reach each other, until the test
// ends.
func startEtcdCluster(t testing.TB, peers ...string) *etcdCluster {
	t.Helper()
	sockets, err := os.MkdirTemp("", "kv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	var names []string
	for i, p := range peers {
		names = append(names, fmt.Sprintf("m%d=http://%s", i, p))
	}
	c := &etcdCluster{t: t, cut: map[int]bool{}}
	for i, p := range peers {
		conf := embed.NewConfig()
		conf.Name, conf.Dir = fmt.Sprintf("m%d", i), t.TempDir()
		conf.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		conf.ListenClientUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(sockets, conf.Name)}}
		conf.AdvertiseClientUrls = conf.ListenClientUrls
		conf.ListenPeerUrls = []url.URL{{Scheme: "http", Host: p}}
		conf.AdvertisePeerUrls = conf.ListenPeerUrls
		conf.InitialCluster = strings.Join(names, ",")
		conf.EnableGRPCGateway, conf.UnsafeNoFsync = false, true
		member, err := embed.StartEtcd(conf)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(member.Close)
		c.members = append(c.members, member)
	}
	for i, member := range c.members {
		select {
		case <-member.Server.ReadyNotify():
		case <-time.After(time.Minute):
			t.Fatalf("member %d of etcd is not ready", i)
		}
	}
	return c
}

// endpoint returns a member's address, for --etcd-endpoints.
func (c *etcdCluster) endpoint(member int) string {
	u := c.members[member].Config().AdvertiseClientUrls[0]
	return u.String()
}

// cutOff silently separates a member from all others. The others keep a quorum while they are the majority.
func (c *etcdCluster) cutOff(member int) {
	c.cut[member] = true
	c.wire()
}

// mend reverts cutOff for all members.
func (c *etcdCluster) mend() {
	clear(c.cut)
	c.wire()
}

func (c *etcdCluster) wire() {
	for i, from := range c.members {
		for j, to := range c.members {
			switch {
			case i == j:
			case c.cut[i] || c.cut[j]:
				from.Server.CutPeer(to.Server.MemberID())
			default:
				from.Server.MendPeer(to.Server.MemberID())
			}
		}
	}
}
