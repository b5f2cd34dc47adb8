package kvtest

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Bare is an etcd for other programs than Navarch's, such as kube-apiserver. It listens on TCP, and no test owns it.
type Bare struct {
	etcd   *process
	client string
}

// StartBare runs an etcd on the data in dir until Close. client and peer are the addresses (host:port) it listens at. It does not wait for
// disks.
func StartBare(dir, client, peer string) (*Bare, error) {
	etcd, err := launch(dir, "--listen-client-urls=http://"+client, "--advertise-client-urls=http://"+client, "--listen-peer-urls=http://"+peer,
		"--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=default=http://"+peer)
	if err != nil {
		return nil, err
	}
	return &Bare{etcd, "http://" + client}, nil
}

// Compact forgets all revisions but the newest.
func (b *Bare) Compact(ctx context.Context) (err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{b.client}, Logger: zap.NewNop()})
	if err != nil {
		return fmt.Errorf("connect to etcd: %w", err)
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	newest, err := client.Get(ctx, "none")
	if err != nil {
		return fmt.Errorf("revision of etcd: %w", err)
	}
	_, err = client.Compact(ctx, newest.Header.Revision, clientv3.WithCompactPhysical())
	return err
}

// Close ends it; its data stay.
func (b *Bare) Close() error { return b.etcd.kill() }
