// Package registry knows the models of the method by name: where they are on the
// hub, under which licence, for which role and with which settings. A Store finds
// them on disk, pulls them and checks them.
//
// A model lies in DIR/NAME (a plain directory), in DIR in the hub's cache layout, or
// in the hub client's cache, in this order. A name may also be a path, or a
// repository ("org/name") that a cache holds.
package registry
