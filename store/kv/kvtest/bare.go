package kvtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// Bare is an etcd in this process for other programs than Navarch's, such as kube-apiserver. It listens on TCP, and no test owns it.
type Bare struct{ server *embed.Etcd }

// StartBare runs an etcd on the data in dir until Close. client and peer are the addresses (host:port) it listens at. It does not wait for
// disks.
func StartBare(dir, client, peer string) (*Bare, error) {
	conf := embed.NewConfig()
	conf.Dir = dir
	conf.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	conf.ListenClientUrls = []url.URL{{Scheme: "http", Host: client}}
	conf.AdvertiseClientUrls = conf.ListenClientUrls
	conf.ListenPeerUrls = []url.URL{{Scheme: "http", Host: peer}}
	conf.AdvertisePeerUrls = conf.ListenPeerUrls
	conf.InitialCluster = conf.Name + "=" + conf.ListenPeerUrls[0].String()
	conf.EnableGRPCGateway, conf.UnsafeNoFsync = false, true
	conf.TickMs, conf.ElectionMs = 10, 50
	server, err := embed.StartEtcd(conf)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-server.Server.ReadyNotify():
		return &Bare{server}, nil
	case <-time.After(time.Minute):
		server.Close()
		return nil, errors.New("etcd is not ready after a minute")
	}
}

// Compact forgets all revisions but the newest.
func (b *Bare) Compact(ctx context.Context) error {
	_, err := b.server.Server.Compact(ctx, &pb.CompactionRequest{Revision: b.server.Server.KV().Rev(), Physical: true})
	return err
}

// Close ends it; its data stay.
func (b *Bare) Close() { b.server.Close() }
