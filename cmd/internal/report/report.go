// Package report defines, writes and reads the archive of navarchctl bug-report and snapshot save.
//
// # Form
//
// The archive is a tar in gzip. Each process writes its part, below processes/NAME/, as a gzip member. Parts are joined
// by concatenation, which gzip and tar allow. The entries are:
//
//	index.json          schema, contents, time, missing processes (Index)
//	processes/NAME/     of one process:
//	  process.json      build, flags, environment, revision (Facts)
//	  records.bin       the records of the store (normalised Kubernetes objects), as in package mirror's file on disk;
//	                    of one process only
//	  proxies.jsonl     the connected proxies, one per line (Proxy)
//	  held.bin          the xDS resources that proxies have, each resource once (Sets)
//	  *.json            pages of /debug and parts of /api/v1, by name
//	  *.txt             goroutines, metrics (twice) and log lines, for people
//	envoys/NAME.json    dumps of Envoys
//	envoys.json         the proxies that were requested to dump their configuration, with errors (Envoy)
//
// # Secrets
//
// The archive never contains private keys of Secrets, encrypted or not. Package store/cut replaces values that look
// like credentials. It recognises them by their form, or by the name of their key.
//
// Owns: the form of the archive.
// Reads: its arguments only.
// Never: trusts an archive (Limits bounds the sizes and numbers of entries).
package report

import (
	"time"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/cut"
	"navarch.io/navarch/store/normal"
)

// Schema names the form of the archive, in Index.Schema. Read refuses archives with another schema.
const Schema = "navarch.io/report/v1"

// Contents tells how much an archive contains: Full or Brief.
type Contents string

// The contents of archives.
const (
	Full  Contents = "bug-report" // everything
	Brief Contents = "snapshot"   // for read commands: no logs, flags, environment, goroutines, metrics, Envoys
)

// Names of entries.
const (
	indexName   = "index.json"
	factsName   = "process.json"
	recordsName = "records.bin"
	proxiesName = "proxies.jsonl"
	heldName    = "held.bin"
	envoysName  = "envoys.json"
	processes   = "processes/"
	envoys      = "envoys/"
)

// Index is the content of index.json. Writer.Index sets Schema.
type Index struct {
	Schema   string    `json:"schema"`
	Contents Contents  `json:"contents"`
	Created  time.Time `json:"created"`           // time of the collection
	Version  string    `json:"version"`           // of the build that wrote the archive
	Asked    string    `json:"asked"`             // name of the process that collected the parts of the other processes
	Missing  []Missing `json:"missing,omitempty"` // the processes that are not in the archive
}

// Missing is a process, or a part of one, that is not in the archive.
type Missing struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Facts is the content of process.json: facts about one process.
type Facts struct {
	Name        string    `json:"name"`    // of the process
	Version     string    `json:"version"` // of the build
	Go          string    `json:"golang_version,omitempty"`
	Platform    string    `json:"platform,omitempty"`
	Zone        string    `json:"zone,omitempty"` // of the process
	Roles       []string  `json:"roles,omitempty"`
	Flags       []string  `json:"flags,omitempty"`       // the flags that were set, as --name=value
	Environment []string  `json:"environment,omitempty"` // variables that the process reads, as NAME=value
	Created     time.Time `json:"created"`               // the time at which the process began to write its part
	// Served is the store's revision that the process serves. Notified is the revision up to which the process has
	// notified its proxies. Both are 0 if the process serves no proxies.
	Served   int64 `json:"served,omitempty"`
	Notified int64 `json:"notified,omitempty"`
	// Cluster is the name of the config cluster. Normal has the options by which objects are normalised to records.
	// Cluster and Normal are for previews of edits.
	Cluster string         `json:"cluster,omitempty"`
	Normal  normal.Options `json:"normal"`
	Missing []Missing      `json:"missing,omitempty"` // entries that this process could not make
}

// Proxy is one line of proxies.jsonl: a connected proxy.
type Proxy struct {
	Node      Node             `json:"node"`
	Identity  string           `json:"identity,omitempty"` // SPIFFE ID; empty on plain text
	Address   string           `json:"address,omitempty"`  // host:port of the connection's peer
	Connected time.Time        `json:"connected"`
	Behind    time.Time        `json:"behind,omitzero"` // time of the first unacknowledged change; zero: no such change
	Revision  int64            `json:"revision"`        // the store's revision of the proxy's newest configuration
	Types     map[string]State `json:"types"`           // states of the subscribed types, by xds.Type.Noun
	// Set is the number (Sets.Add) of the set of resources that the proxy has. Proxies with equal configuration may
	// share one set. Set is -1 if the archive has no set for the proxy.
	Set int `json:"set"`
}

// State is the state of one type of resources at a proxy. Its fields are those of inspect.TypeStatus.
type State struct {
	Synced   bool               `json:"synced,omitempty"`
	Sent     string             `json:"sent,omitempty"`
	Acked    string             `json:"acked,omitempty"`
	Refused  []inspect.Refused  `json:"refused,omitempty"`
	Withheld []inspect.Withheld `json:"withheld,omitempty"`
	Warming  *inspect.Warming   `json:"warming,omitempty"`
}

// StatesOf returns the states of the subscribed types, by Type.Noun. It replaces credentials in the Text of each
// refused or withheld version, and also changes the argument in this way. The result is not nil, and shares slices and
// pointers with the argument.
func StatesOf(types *[xds.NumTypes]inspect.TypeStatus) map[string]State {
	all := map[string]State{}
	for t := range types {
		for i := range types[t].Refused {
			types[t].Refused[i].Text = cut.String(types[t].Refused[i].Text)
		}
		for i := range types[t].Withheld {
			types[t].Withheld[i].Text = cut.String(types[t].Withheld[i].Text)
		}
	}
	for t := range xds.NumTypes {
		if s := &types[t]; s.Subscribed {
			all[t.Noun()] = State{Synced: s.Synced, Sent: s.Sent, Acked: s.Acked,
				Refused: s.Refused, Withheld: s.Withheld, Warming: s.Warming}
		}
	}
	return all
}

// Statuses is the inverse of StatesOf: it returns the states by type. Types without a state have the zero TypeStatus.
// The result shares slices and pointers with p.
func (p *Proxy) Statuses() (types [xds.NumTypes]inspect.TypeStatus) {
	for t := range xds.NumTypes {
		if s, ok := p.Types[t.Noun()]; ok {
			types[t] = inspect.TypeStatus{Subscribed: true, Synced: s.Synced, Sent: s.Sent, Acked: s.Acked,
				Refused: s.Refused, Withheld: s.Withheld, Warming: s.Warming}
		}
	}
	return types
}

// Ill reports whether a proxy has faults. The result refuses is true if the proxy refuses a version of a resource, or
// if a version is withheld from the proxy. The result behind is true if a subscribed type is not synced.
func (p *Proxy) Ill() (refuses, behind bool) {
	for _, s := range p.Types {
		refuses = refuses || len(s.Refused)+len(s.Withheld) > 0
		behind = behind || !s.Synced
	}
	return refuses, behind
}

// Envoy is an entry of envoys.json: a proxy that was requested to dump its configuration.
type Envoy struct {
	Proxy string `json:"proxy"`
	State string `json:"state"`           // "refusing" or "behind"
	File  string `json:"file,omitempty"`  // the name of the entry with the dump (EnvoyFile)
	Error string `json:"error,omitempty"` // the reason for a missing dump; empty if File is set
}
