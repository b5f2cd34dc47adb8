package kvtest

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Standalone is an etcd for programs outside Navarch, such as kube-apiserver. It listens on TCP, and runs until Close
// or the end of this process, independently of tests.
type Standalone struct {
	etcd   *process
	client string
}

// StartStandalone starts an etcd on the data in dir, and returns once it is ready. The path dir is absolute. The
// parameters client and peer are the listen addresses (host:port). The etcd does not sync to disk. Errors: the program
// is missing, does not start, or is not ready within a minute, or the folder of its sockets cannot be made.
func StartStandalone(dir, client, peer string) (*Standalone, error) {
	etcd, err := launch(dir, "--listen-client-urls=http://"+client, "--advertise-client-urls=http://"+client,
		"--listen-peer-urls=http://"+peer,
		"--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=default=http://"+peer)
	if err != nil {
		return nil, err
	}
	return &Standalone{etcd, "http://" + client}, nil
}

// Compact drops all revisions but the newest, and waits until their space is free. Errors are etcd's. It is also an
// error if nothing was written since the last Compact.
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

// PutAll writes values by key into the etcd at a client address (host:port or URL). Errors are etcd's. After an error,
// some values may have been written.
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

// ReadAll reads the values of all keys with a prefix, at one revision. The parameter etcd is a client address, as for
// PutAll. The result is never nil. Errors are etcd's.
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

// with calls the function do with a client of the etcd at an address, and closes the client.
func with(etcd string, do func(*clientv3.Client) error) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd}, Logger: zap.NewNop()})
	if err != nil {
		return fmt.Errorf("connect to etcd: %w", err)
	}
	return errors.Join(do(client), client.Close())
}

// Close kills the etcd and keeps its data. Errors: the process could not be killed, or the folder of its sockets could
// not be removed.
func (b *Standalone) Close() error { return b.etcd.kill() }
