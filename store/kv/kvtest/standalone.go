package kvtest

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Standalone is an etcd for other programs than Navarch's, such as kube-apiserver. It listens on TCP, and no test owns it.
type Standalone struct {
	etcd   *process
	client string
}

// StartStandalone runs an etcd on the data in dir until Close. client and peer are the addresses (host:port) it listens at. It does not wait for
// disks. The error says that the program is not there, or why it does not answer.
func StartStandalone(dir, client, peer string) (*Standalone, error) {
	etcd, err := launch(dir, "--listen-client-urls=http://"+client, "--advertise-client-urls=http://"+client, "--listen-peer-urls=http://"+peer,
		"--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=default=http://"+peer)
	if err != nil {
		return nil, err
	}
	return &Standalone{etcd, "http://" + client}, nil
}

// Compact forgets all revisions but the newest. Errors are etcd's.
func (b *Standalone) Compact(ctx context.Context) error {
	return with(b.client, func(client *clientv3.Client) error {
		newest, err := client.Get(ctx, "none")
		if err != nil {
			return fmt.Errorf("revision of etcd: %w", err)
		}
		_, err = client.Compact(ctx, newest.Header.Revision, clientv3.WithCompactPhysical())
		return err
	})
}

// PutAll writes values into the etcd at an address, by their keys. Errors are etcd's: some values may have been written.
func PutAll(ctx context.Context, etcd string, values map[string][]byte) error {
	return with(etcd, func(client *clientv3.Client) error {
		for key, value := range values {
			if _, err := client.Put(ctx, key, string(value)); err != nil {
				return err
			}
		}
		return nil
	})
}

// ReadAll reads the values in the etcd at an address whose keys begin with a prefix. Errors are etcd's.
func ReadAll(ctx context.Context, etcd, prefix string) (values map[string][]byte, err error) {
	values = map[string][]byte{}
	return values, with(etcd, func(client *clientv3.Client) error {
		found, err := client.Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, kv := range found.Kvs {
			values[string(kv.Key)] = kv.Value
		}
		return nil
	})
}

// with has a client of the etcd at an address.
func with(etcd string, do func(*clientv3.Client) error) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd}, Logger: zap.NewNop()})
	if err != nil {
		return fmt.Errorf("connect to etcd: %w", err)
	}
	return errors.Join(do(client), client.Close())
}

// Close ends it; its data stay. The error says that it could not be killed, or that the folder of its sockets could not be removed.
func (b *Standalone) Close() error { return b.etcd.kill() }
