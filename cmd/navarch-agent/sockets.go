package main

import (
	"fmt"
	"path/filepath"

	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/socket"
)

// The agent's Unix sockets are in a folder that only two parties can access: the user that runs this process and Envoy,
// and the group of --xds-socket-group. A client of the XDS socket acts as this proxy towards the control plane. A
// client of the SDS socket receives the proxy's private key, so members of the group may not use this socket.

func (o *options) sockets() string { return filepath.Join(o.configPath, "sockets") }
func (o *options) socket() string  { return filepath.Join(o.sockets(), "XDS") }
func (o *options) sds() string     { return filepath.Join(o.sockets(), "SDS") }

// makeSockets creates the folder of the sockets. It returns the ID of the group that may use the XDS socket, or nil if
// --xds-socket-group is not set. It returns an error if the group is unknown, or if the folder cannot be made or
// belongs to another user.
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

// refusedAt returns a function that logs a refused connection to the socket called name.
func refusedAt(log *obs.Sampled, name string) func(socket.Peer) {
	return func(p socket.Peer) {
		if p.Err != nil {
			log.Warn("a connection to a socket of the agent was refused: the client's process is unknown", name, obs.KeyError, p.Err)
			return
		}
		log.Warn("a connection to a socket of the agent was refused: the client's process does not run as Envoy's user", name,
			obs.KeyUser, p.User(), obs.KeyPID, p.PID)
	}
}
