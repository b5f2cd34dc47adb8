package main

import (
	"fmt"
	"path/filepath"

	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/socket"
)

// The agent's Unix sockets are in a folder of their own, which is the user's that this process and Envoy run as (issue 12, item
// 6): who reaches XDS acts as this proxy towards the control plane, and who reaches SDS has its private key.

func (o *options) sockets() string { return filepath.Join(o.configPath, "sockets") }
func (o *options) socket() string  { return filepath.Join(o.sockets(), "XDS") }
func (o *options) sds() string     { return filepath.Join(o.sockets(), "SDS") }

// makeSockets makes that folder, and returns the group that has the XDS socket too; nil: none has.
func (o *options) makeSockets() (group *uint32, err error) {
	if o.socketGroup != "" {
		id, err := socket.GroupID(o.socketGroup)
		if err != nil {
			return nil, fmt.Errorf("--xds-socket-group: %w", err)
		}
		group = &id
	}
	if err := socket.Folder(o.sockets(), group); err != nil {
		if group != nil {
			return nil, fmt.Errorf("--config-path, --xds-socket-group: %w", err)
		}
		return nil, fmt.Errorf("--config-path: %w", err)
	}
	return group, nil
}

// refusedAt logs who was not let in at a socket, name.
func refusedAt(log *obs.Sampled, name string) func(socket.Peer) {
	return func(p socket.Peer) {
		if p.Err != nil {
			log.Warn("a connection to a socket of the agent was refused: nothing is known of its process", name, obs.KeyError, p.Err)
			return
		}
		log.Warn("a connection to a socket of the agent was refused: its process runs as another user than Envoy", name,
			obs.KeyUser, p.User(), obs.KeyPID, p.PID)
	}
}
