//go:build linux

// Command emuinit is process 1 of the emulated machine of deploy/test-avx512.sh:
// it runs the programs listed in /commands, one a line ("NAME=value … program
// argument …"), prints "exit status N" with the first status that is not 0, and
// switches the machine off.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

func main() {
	status := 0
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}} {
		if err := syscall.Mount(m[0], m[1], m[0], 0, ""); err != nil {
			fmt.Println("mount", m[1], err)
		}
	}
	list, err := os.ReadFile("/commands")
	if err != nil {
		fmt.Println(err)
		status = 1
	}
	for _, line := range strings.Split(strings.TrimSpace(string(list)), "\n") {
		f := strings.Fields(line)
		var env []string
		for len(f) > 0 && strings.Contains(f[0], "=") {
			env, f = append(env, f[0]), f[1:]
		}
		if len(f) == 0 {
			continue
		}
		fmt.Println("#", line)
		c := exec.Command(f[0], f[1:]...)
		c.Env, c.Dir, c.Stdout, c.Stderr = append(env, "HOME=/tmp", "TMPDIR=/tmp"), "/", os.Stdout, os.Stderr
		if err := c.Run(); err != nil {
			fmt.Println(line, err)
			if status == 0 {
				status = max(1, c.ProcessState.ExitCode())
			}
		}
	}
	fmt.Println("exit status", status)
	// The serial port is slower than we are: wait until it has sent everything (TCSBRK).
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, 1, 0x5409, 1)
	if err := syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println(err)
	}
	select {}
}
