//go:build race

package native

func init() { underRace = true }
