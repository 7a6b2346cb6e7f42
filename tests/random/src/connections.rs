//! Connections by the connection manager: both sides are in the program. A soft device has a network of its own; a device of the kernel
//! has the address in UVERBS_TEST_ADDRESS.

use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use uverbs::cm::{ConnectError, Connection, Incoming, Listener, Manager, Target};

use crate::language::PLACES;
use crate::world::{Machine, Miss, Places, World};

type Made = Result<Connection, ConnectError>;

/// A call that makes a connection. Its result may be there before the program asks for it.
pub enum Call {
    Waits(Pin<Box<dyn Future<Output = Made> + Send>>),
    Done(Made),
}

impl Call {
    /// Goes on as far as it can.
    fn go_on(&mut self, context: &mut Context<'_>) {
        if let Self::Waits(future) = self
            && let Poll::Ready(made) = future.as_mut().poll(context)
        {
            *self = Self::Done(made);
        }
    }
}

/// What a program has of a connection manager.
pub struct Connections {
    pub listeners: Places<Listener>,
    pub targets: Places<Target>,
    pub incoming: Places<Incoming>,
    pub calls: Places<Call>,
    pub made: Places<Connection>,
    pub manager: Manager,
    address: IpAddr,
    // Dropped after what it serves.
    runtime: Runtime,
}

/// The address of a soft device.
const SOFT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// What is under way on a soft network is there within this time.
const SOON: Duration = Duration::from_millis(3);
/// What a kernel needs at most for what is sure to come.
const LONG: Duration = Duration::from_secs(3);

impl Connections {
    fn open(machine: &Machine) -> Result<Self, Miss> {
        let (manager, address) = match &machine.soft {
            Some(soft) => {
                let network = uverbs::cm::SoftNetwork::default();
                network.join(soft, SOFT)?;
                (network.manager()?, SOFT)
            }
            None => {
                let address = std::env::var("UVERBS_TEST_ADDRESS").map_err(|_| Miss::Absent)?;
                (Manager::open()?, address.parse().expect("an address"))
            }
        };
        Ok(Self {
            listeners: Places::default(),
            targets: Places::default(),
            incoming: Places::default(),
            calls: Places::default(),
            made: Places::default(),
            manager,
            address,
            runtime: Builder::new_current_thread().enable_all().build().expect("a runtime"),
        })
    }

    pub fn at(&self, port: u64) -> SocketAddr {
        SocketAddr::new(self.address, port as u16)
    }

    /// All calls go on as far as they can, as tasks do.
    pub fn go_on(&mut self) {
        let Self { calls, runtime, .. } = self;
        runtime.block_on(poll_fn(|context| {
            go_on(calls, context);
            Poll::Ready(())
        }));
    }
}

fn go_on(calls: &mut Places<Call>, context: &mut Context<'_>) {
    for at in 0..PLACES as u64 {
        if let Ok(call) = calls.get_mut(at) {
            call.go_on(context);
        }
    }
}

impl World {
    /// What it has of a connection manager, which is opened when it is first used. A child of fork has none.
    pub fn connections(&mut self) -> Result<&mut Connections, Miss> {
        if self.is_child {
            return Err(Miss::Absent);
        }
        if self.connections.is_none() {
            self.connections = Some(Box::new(Connections::open(&self.machine)?));
        }
        self.connections.as_deref_mut().ok_or(Miss::Absent)
    }

    /// Waits for what another step has begun, while all calls go on; `None` if it does not come. If it did not come in the first run, a
    /// kernel gets only a moment.
    pub fn awaited<T>(&mut self, future: impl Future<Output = T>) -> Result<Option<T>, Miss> {
        let limit = match (&self.machine.soft, self.expected) {
            (Some(_), _) => SOON,
            (None, Some(0)) => self.patience.max(SOON),
            (None, _) => LONG,
        };
        let Connections { calls, runtime, .. } = self.connections.as_deref_mut().ok_or(Miss::Absent)?;
        Ok(runtime.block_on(async {
            let mut future = pin!(future);
            let both = poll_fn(|context| {
                go_on(calls, context);
                future.as_mut().poll(context)
            });
            tokio::time::timeout(limit, both).await.ok()
        }))
    }
}
